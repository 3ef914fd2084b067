package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Config is the agent's own config with all defaults filled in and all paths absolute. The keys, their bounds and
// their documentation stand in [Config.fields]; [Load] reads it.
type Config struct {
	Node      NodeConfig
	Paths     PathsConfig
	Resources ResourcesConfig
	API       APIConfig
	XDS       XDSConfig
	DNS       DNSConfig
	AccessLog AccessLogConfig
	AuditLog  AuditLogConfig
	Gossip    GossipConfig
	Trust     TrustConfig
	Mesh      MeshConfig
	VIPs      VIPsConfig
	Log       LogConfig
}

// NodeConfig says who this node is.
type NodeConfig struct {
	Name string
	Zone string
}

// PathsConfig holds the directories below which relative paths lie.
type PathsConfig struct {
	Run   string // sockets
	State string // what survives a restart
	Logs  string
}

// ResourcesConfig is the resource directory.
type ResourcesConfig struct {
	Dir string
}

// SocketConfig is a unix socket that the agent serves.
type SocketConfig struct {
	Path  string
	Mode  fs.FileMode // permission bits
	Group string      // name or number; "": the agent's own
}

// APIConfig is how the HTTP API is reached.
type APIConfig struct {
	Socket    SocketConfig
	TCP       string // host:port on loopback; "": off
	TokenFile string // "": TCP is read-only
}

// XDSConfig is how Envoys reach the agent.
type XDSConfig struct {
	Socket SocketConfig // Group is always empty
	TCP    string       // host:port; "": off
}

// DNSConfig is the resolver of mesh names.
type DNSConfig struct {
	Listen    string // host:port; "": off
	Upstreams []string
	CacheSize int // answers
}

// RotationConfig bounds rotated files. Each limit stands alone; 0 switches it off.
type RotationConfig struct {
	MaxFileSize int // megabytes of the active file
	MaxFiles    int // rotated files kept beside the active one
	MaxFileAge  int // days that rotated files are kept
}

// AccessLogConfig is where access logs go.
type AccessLogConfig struct {
	Receivers []ReceiverConfig
	Files     RotationConfig // of the file backends that the agent writes
}

// ReceiverConfig is one TCP receiver of access-log lines.
type ReceiverConfig struct {
	Name    string
	Address string // host:port
	File    string
	RotationConfig
}

// AuditLogConfig is about the log of requests to the API.
type AuditLogConfig struct {
	Profile string
	RotationConfig
}

// GossipConfig is the pool of agents.
type GossipConfig struct {
	Bind        string // host:port; "": stand-alone
	Advertise   string // host:port; "": Bind
	Join        []string
	KeyringFile string
	Cluster     string
}

// TrustConfig says whose records are believed.
type TrustConfig struct {
	Mode string // off, warn or enforce
	File string
}

// MeshConfig holds defaults of every mesh.
type MeshConfig struct {
	AutoReachableBackends bool
	FlatNetwork           bool // dataplanes of other zones are reached directly, also where there is an ingress
}

// VIPsConfig is about the virtual addresses of services. Each range is one IPv4 prefix, one IPv6 prefix, or both; what
// is missing is that of [mesh.DefaultVIPRanges].
type VIPsConfig struct {
	Families             string // IPv4 or DualStack: at which of them proxies listen
	ReleaseAfter         int    // seconds
	Tag                  []string
	MeshService          []string
	MeshExternalService  []string
	MeshMultiZoneService []string
}

// LogConfig is about the agent's own log on stderr.
type LogConfig struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// Default paths of a privileged agent, and where its config is looked for when none is named.
const (
	DefaultConfigFile = "/etc/nearside/agent.yaml"

	defaultRun       = "/run/nearside"
	defaultState     = "/var/lib/nearside"
	defaultLogs      = "/var/log/nearside"
	defaultResources = "/etc/nearside/resources"
)

// defaults returns the config without any file, variable or flag.
func defaults(hostname string) *Config {
	rotation := RotationConfig{MaxFileSize: 200, MaxFiles: 10}
	return &Config{
		Node:      NodeConfig{Name: nodeName(hostname), Zone: "default"},
		Paths:     PathsConfig{Run: defaultRun, State: defaultState, Logs: defaultLogs},
		Resources: ResourcesConfig{Dir: defaultResources},
		API:       APIConfig{Socket: SocketConfig{Path: "nearside.sock", Mode: 0o660, Group: "nearside"}},
		XDS:       XDSConfig{Socket: SocketConfig{Path: "xds.sock", Mode: 0o666}},
		DNS:       DNSConfig{Listen: "127.0.0.1:15053", CacheSize: 10000},
		AccessLog: AccessLogConfig{
			Receivers: []ReceiverConfig{defaultReceiver("default", "127.0.0.1:5000", "access/default.log")},
			Files:     rotation,
		},
		AuditLog: AuditLogConfig{Profile: "Default", RotationConfig: rotation},
		Gossip:   GossipConfig{Cluster: "default"},
		Trust:    TrustConfig{Mode: "off"},
		VIPs: VIPsConfig{
			Families: resource.IPFamilyIPv4, ReleaseAfter: 3600,
			Tag: []string{"240.0.0.0/8", "fd00:fd00::/64"}, MeshService: []string{"241.0.0.0/8", "fd00:fd01::/64"},
			MeshExternalService: []string{"242.0.0.0/8", "fd00:fd02::/64"}, MeshMultiZoneService: []string{"243.0.0.0/8", "fd00:fd03::/64"},
		},
		Log: LogConfig{Level: "info", Format: "text"},
	}
}

func defaultReceiver(name, address, file string) ReceiverConfig {
	return ReceiverConfig{Name: name, Address: address, File: file,
		RotationConfig: RotationConfig{MaxFileSize: 200, MaxFiles: 10}}
}

// unprivileged moves the default paths below base, where a user without rights on the system's directories can write.
func (c *Config) unprivileged(base string) {
	c.Paths = PathsConfig{Run: filepath.Join(base, "run"), State: filepath.Join(base, "state"), Logs: filepath.Join(base, "logs")}
	c.Resources.Dir = filepath.Join(base, "resources")
	c.API.Socket.Group = ""
}

// unprivilegedBase is where an agent lives that has neither root nor a config file.
func unprivilegedBase(runtimeDir, workDir string) string {
	if filepath.IsAbs(runtimeDir) {
		return filepath.Join(runtimeDir, "nearside")
	}
	return filepath.Join(workDir, "nearside-data")
}

// nodeName makes a host name a valid node name: lower case, with what DNS does not take replaced by "-".
func nodeName(hostname string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		}
		return '-'
	}, strings.ToLower(hostname))
	if len(clean) > maxNodeName {
		clean = clean[:maxNodeName]
	}
	clean = strings.Trim(clean, "-.")
	if !dnsName(clean) {
		return "node"
	}
	return clean
}

// workDir returns dir, or the working directory when dir is empty.
func workDir(dir string) string {
	if dir == "" {
		if wd, err := os.Getwd(); err == nil {
			return wd
		}
		return "/"
	}
	return dir
}
