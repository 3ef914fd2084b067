// Package config defines the agent's own config: its keys, defaults, and limits, and the source of
// each value.
//
// [Load] reads flags, environment, and file over the defaults and returns all faults at once.
package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"github.com/nearside-mesh/nearside/rotation"
)

// Config is the agent's own config with all defaults filled in and all paths absolute. [Load] reads
// it.
//
// Each field is a key. Its tags control the decoder, the variables, --set, the JSON Schema,
// "config show", and the checks of single values:
//
//	json      name of the key
//	doc       description for docs/config.md and the schema
//	default   value of a key that is not set, in the syntax of variables
//	check     name of the check for the text, see [checkText]
//	oneOf     allowed values, separated by commas
//	max       maximum length of a text in bytes, number of list items, or number
//	path      the text is a path relative to this key of paths; ".": to the directory of its source
//	required  the text or list must not be empty; a list item must contain the key
//	unique    all items of a list must have different values
//	text      key of the items; a string instead of the list is one item with this key
//	nil       an absent list differs from an empty one
//	example   example of the list for messages
//	list      a list instead of the mapping is this key
//	live      SIGHUP applies a changed value, without a restart
//
// List items are texts, or structs with the same tags, which may contain lists.
type Config struct {
	Node struct {
		Name string `json:"name" check:"name" required:"" max:"253" doc:"Name of this node, unique in the cluster. Default: the host name."`
		Zone string `json:"zone" default:"default" check:"name" required:"" max:"63" doc:"Zone of this node."`
	} `json:"node"`
	// Paths contains the base directories of relative paths.
	Paths struct {
		Run   string `json:"run" default:"/run/nearside" path:"." required:"" doc:"Directory of the sockets."`
		State string `json:"state" default:"/var/lib/nearside" path:"." required:"" doc:"Directory of data that survives a restart."`
		Logs  string `json:"logs" default:"/var/log/nearside" path:"." required:"" doc:"Directory of log files."`
	} `json:"paths"`
	Resources struct {
		Dir []ResourceDir `json:"dir" default:"/etc/nearside/resources" text:"path" required:"" max:"16" example:"[{path: /etc/nearside/resources}, {path: /srv/team, role: observability}]" doc:"Directory of resource files (*.yaml, *.yml, *.json), watched for changes, or a list of directories with options. Their resources are read-only over the API."`
	} `json:"resources" list:"dir"`
	API struct {
		Socket struct { // a Socket
			Path  string      `json:"path" default:"nearside.sock" path:"run" check:"socket" required:"" doc:"Unix socket of the HTTP API, below paths.run when relative."`
			Mode  fs.FileMode `json:"mode" default:"0660" doc:"Permissions of the API socket, octal."`
			Group string      `json:"group" default:"nearside" check:"group" max:"32" doc:"Group of the API socket, by name or number; its members may write. Empty: the group of the agent."`
		} `json:"socket"`
		TCP       string        `json:"tcp" check:"loopback" doc:"Loopback address that serves the same API. All requests except GET of /, /livez and /readyz need a token. Empty: off."`
		TokenFile string        `json:"tokenFile" path:"state" doc:"File with a bearer token for reading and writing over TCP, below paths.state when relative."`
		Roles     []access.Role `json:"roles" nil:"" max:"64" example:"[{name: ops, template: mesh-operator, subjects: [{group: ops}]}]" doc:"Roles that define which users may read and write which resources. Absent: everyone with access to the socket may read, and its group may write. []: only root and the user of the agent have access."`
	} `json:"api"`
	XDS struct {
		Socket struct { // a Socket
			Path  string      `json:"path" default:"xds.sock" path:"run" check:"socket" required:"" doc:"Unix socket that serves config to Envoys (xDS), below paths.run when relative."`
			Mode  fs.FileMode `json:"mode" default:"0660" doc:"Permissions of the xDS socket, octal."`
			Group string      `json:"group" default:"nearside-envoy" check:"group" max:"32" doc:"Group of the xDS socket and of the FIFOs and sockets of access logs, by name or number; without xds.access, its members may connect as the proxies of stored Dataplanes, see xds.unpinned. It must not be the group of the API socket. Empty: the group of the agent."`
		} `json:"socket"`
		Unpinned string `json:"unpinned" default:"refuse" oneOf:"refuse,allow" doc:"Members of the group of the xDS socket may connect as the proxies of Dataplanes without the label nearside.io/user, nearside.io/unit, nearside.io/cgroup, or nearside.io/pod: refuse or allow. Without effect on root, the user of the agent, tokens, and xds.access."`
		Pods     string `json:"pods" path:"run" doc:"Directory in which the CSI driver of nearside registers the pods of the node, in paths.run, and below it when relative. The agent serves each pod in a directory of its own, and knows each peer there by its pod. Empty: off."`
		TCP      string `json:"tcp" check:"address" doc:"TCP address for Envoys that cannot open the socket. They need a token or a client certificate unless xds.insecure is true; an address that is not loopback needs xds.tls. Private keys are sent only over TLS, and only to peers with a token or certificate. Empty: off."`
		Insecure bool   `json:"insecure" doc:"Peers on xds.tcp need neither a token nor a certificate, and xds.tls is optional for all addresses."`
		TLS      struct {
			Cert     string `json:"cert" path:"state" doc:"File with the certificate chain for TLS on xds.tcp, PEM, below paths.state when relative. Empty: no TLS."`
			Key      string `json:"key" path:"state" doc:"File with the private key of xds.tls.cert, PEM, below paths.state when relative."`
			ClientCA string `json:"clientCA" path:"state" doc:"File with the CA certificates for client certificates, PEM, below paths.state when relative. Empty: no client certificates."`
		} `json:"tls"`
		DrainTime int                `json:"drainTime" default:"600" max:"86400" doc:"Seconds for which an Envoy keeps the clusters of a removed listener, so that its open connections can end. Use at least Envoy's --drain-time-s, whose default is 600. 0: the clusters are removed as soon as Envoy has acknowledged the listeners."`
		Access    []access.ProxyRule `json:"access" nil:"" max:"256" example:"[{user: envoy, nodes: [default.web]}]" doc:"Rules that define which peers may connect as which proxies. The first matching rule applies; peers without a matching rule are refused. Absent: the default rules. []: all peers are refused."`
	} `json:"xds"`
	Metrics   Metrics   `json:"metrics"`
	UI        UI        `json:"ui"`
	Webhook   Webhook   `json:"webhook"`
	Inject    Inject    `json:"inject"`
	DNS       DNS       `json:"dns"`
	Intercept Intercept `json:"intercept"`
	AccessLog struct {
		Receivers []Receiver      `json:"receivers" max:"64" example:"[{name: default, address: '127.0.0.1:5000', file: access/default.log}]" doc:"Receivers of access-log lines, over TCP or a unix socket."`
		Files     rotation.Limits `json:"files"` // of file backends that the agent writes
		Rotation  string          `json:"rotation" default:"always" oneOf:"always,policy,none" doc:"Files of policies that the agent writes and rotates: all below paths.logs and accessLog.directories (always), only those whose backend sets rotation (policy), or none. Envoys write the other ones, without limits. A backend with rotation: none is always written by its Envoy."`
		// Directories are additional directories, besides paths.logs, in which policies may name
		// files that the agent writes.
		Directories []string `json:"directories" path:"logs" max:"64" unique:"" doc:"Directories in addition to paths.logs in which policies may name files that the agent writes; below paths.logs when relative. They must belong to root or the user of the agent."`
		Spool       Spool    `json:"spool"`
		Group       string   `json:"group" check:"group" max:"32" doc:"Group of access-log files, by name or number; its members may read them. Empty: the group of the agent."`
		Compress    bool     `json:"compress" doc:"Compress rotated access-log files with gzip."`
		MinFree     int      `json:"minFree" max:"1048576" doc:"Megabytes that access logs leave free on their file system; with less free space the disk counts as full. 0: no limit."`
		OnFull      string   `json:"onFull" default:"block" oneOf:"block,dropNewest" doc:"Handling of lines while the disk is full or fails and accessLog.spool has no space on another disk: block makes senders wait; dropNewest drops and counts lines, and records the number in the file."`
		// Share lets other nodes of the pool read access logs, for senders that they have authorized.
		Share bool   `json:"share" doc:"Answer queries of logs from other nodes of the pool (nearside logs --all-nodes). Each node authorizes its own senders, so with this key every node of the pool can read the logs of this one."`
		Fsync string `json:"fsync" default:"second" oneOf:"second,batch,never" doc:"When lines are synced to disk: once a second, with each batch, or never (the kernel decides). A crash of the agent does not lose lines in any mode."`
	} `json:"accessLog"`
	// AuditLog configures the log of API requests.
	AuditLog struct {
		Path            string `json:"path" default:"audit/audit.log" path:"logs" required:"" doc:"File of the audit log, below paths.logs when relative. The agent creates missing directories of it below paths.logs."`
		Profile         string `json:"profile" default:"Default" oneOf:"Default,WriteRequestBodies,AllRequestBodies,None" live:"" doc:"What auditLog.path contains of API requests: the metadata of all (Default), also the bodies of writes, or also the bodies of all resource requests. None: nothing; the agent logs a warning."`
		rotation.Limits `live:""`
	} `json:"auditLog"`
	// Gossip configures the pool of agents.
	Gossip struct {
		Bind        string   `json:"bind" check:"address" doc:"Address for the gossip pool, over UDP and TCP: an IP address and a port, or :port for all addresses. Empty: the agent joins no pool."`
		Advertise   string   `json:"advertise" check:"address" doc:"IP address and port at which other members reach gossip.bind. Empty: gossip.bind, or an address of the host."`
		Join        []string `json:"join" check:"seed" max:"256" doc:"Members to contact when joining, as host:port, or file:PATH for a file with one address per line. Each attempt resolves the names and reads the files again."`
		KeyringFile string   `json:"keyringFile" path:"state" doc:"File with the keys for gossip traffic, base64, one per line; the first one encrypts. Below paths.state when relative. Anyone with a key can be a member and change all resources."`
		Insecure    bool     `json:"insecure" doc:"Run the pool without keys: traffic is not encrypted, and any host that reaches gossip.bind can be a member."`
		TCPOnly     bool     `json:"tcpOnly" doc:"Use only TCP for the pool, for networks that block UDP."`
		Admit       string   `json:"admit" oneOf:",key,enrolled" live:"" doc:"Nodes that may be members: those with a key of gossip.keyringFile (key), or only those with an enrollment in addition (enrolled; see nearside trust enroll). Empty: enrolled where trust is enforced, and else key."`
		Cluster     string   `json:"cluster" default:"default" check:"name" required:"" max:"63" doc:"Name of the cluster. Messages from agents of other clusters are ignored."`
	} `json:"gossip"`
	Trust struct {
		Mode string `json:"mode" default:"off" oneOf:"off,warn,enforce" live:"" doc:"Handling of data of the pool that its signer may not write: off does not judge it, warn lists it, and enforce keeps it out of force. The stricter one of this key and the mode in the trust file applies. With enforce, the node accepts its first trust file only from trust.file or its own API."`
		File string `json:"file" path:"state" doc:"Trust file that this node trusts first, below paths.state when relative; SIGHUP reads it again. Empty: the node trusts the first trust file of the pool."`
	} `json:"trust"`
	// Mesh contains defaults for all meshes.
	Mesh struct {
		AutoReachableBackends bool `json:"autoReachableBackends" doc:"Derive reachable backends from MeshTrafficPermission."`
		FlatNetwork           bool `json:"flatNetwork" doc:"Connect to dataplanes of other zones directly, even if their zone has a ZoneIngress."`
	} `json:"mesh"`
	VIPs VIPs `json:"vips"`
	// Log configures the agent's own log.
	Log Log `json:"log"`
	// Identity is reserved for future use.
	Identity struct{} `json:"identity"`
}

// AuditLogPath returns the path of the audit log.
func (c *Config) AuditLogPath() string { return c.AuditLog.Path }

// Socket is a Unix socket that the agent serves.
type Socket struct {
	Path  string
	Mode  fs.FileMode // permission bits
	Group string      // name or number; "": the agent's own
}

// DNS configures the resolver.
type DNS struct {
	Listen string `json:"listen" default:"127.0.0.1:15053" check:"resolver" doc:"UDP and TCP address of the resolver, IP:port; localhost:port is 127.0.0.1 and ::1, and :port all addresses. Empty: off. If the default address is not available, the agent runs without a resolver; if an address that was set is not available, the agent does not start."`
	// Given is true if Listen is set explicitly.
	Given         bool         `json:"-"`
	Upstreams     []string     `json:"upstreams" check:"upstream" max:"8" doc:"Upstream resolvers for other names, IP or IP:port. Empty: those of /etc/resolv.conf."`
	Forward       []DNSForward `json:"forward" max:"64" live:"" example:"[{domains: [corp.example], upstreams: [10.0.0.53]}]" doc:"Upstream resolvers for names in some domains. The longest domain of a name decides."`
	TrustAD       bool         `json:"trustAD" live:"" doc:"Clients that request it get the AD bit (validated by DNSSEC) of dns.upstreams and dns.forward. Set it only if these upstreams validate and the network to them is trusted, or protocol is tls. For upstreams of /etc/resolv.conf, its option trust-ad applies."`
	CacheSize     int          `json:"cacheSize" default:"10000" max:"10000000" doc:"Maximum number of cached answers from upstreams. The cache takes 400 bytes of memory for each, and at least 256 KiB. 0: no cache."`
	ClientRate    int          `json:"clientRate" max:"1000000" doc:"Queries per second and client address that are forwarded to upstreams; further ones fail (SERVFAIL). Loopback addresses are not limited, because many workloads share them. 0: no limit."`
	TTL           int          `json:"ttl" default:"30" max:"86400" live:"" doc:"Seconds for which clients may cache addresses and other records of mesh names; at least 1."`
	NegativeTTL   int          `json:"negativeTTL" default:"5" max:"86400" live:"" doc:"Seconds for which clients may cache that a mesh name or its record type does not exist; at least 1. New names are visible to these clients only then."`
	Suffixes      []string     `json:"suffixes" default:"mesh,mesh.local" check:"name" max:"64" live:"" doc:"Suffixes that belong to the meshes. Unknown names below them do not exist and are never forwarded to upstreams."`
	OwnGenerators bool         `json:"generatorSuffixes" default:"true" live:"" doc:"Treat the suffixes of names from HostnameGenerators like dns.suffixes if upstreams answered that they do not exist, or if they are special-use names such as test."`
	ReachableOnly bool         `json:"reachableOnly" live:"" doc:"Workloads that query from the address of a dataplane of this node resolve only the services that the dataplane can reach: its reachable backends, or those that permissions allow."`
	Rebind        string       `json:"rebind" default:"allow" oneOf:"allow,protect" live:"" doc:"Loopback, link-local, and private addresses in answers of upstreams: allow them, or protect clients against DNS rebinding by dropping them. Virtual addresses are always dropped."`
	// RebindExceptions are names for which Rebind drops nothing.
	RebindExceptions []string `json:"rebindExceptions" check:"name" max:"256" unique:"" live:"" doc:"Names that, with the names below them, may have loopback, link-local, and private addresses with dns.rebind: protect."`
	QueryLog         QueryLog `json:"queryLog"`
}

// DNSForward names the upstreams for some domains.
type DNSForward struct {
	Domains    []string `json:"domains" check:"domain" required:"" max:"64" doc:"Domains, each with all names below it; \".\" is every name without a longer domain. Domains of dns.suffixes belong to the meshes and are not allowed."`
	Upstreams  []string `json:"upstreams" check:"upstream" required:"" max:"8" doc:"Upstream resolvers, IP or IP:port. The default port is 53, or 853 with tls."`
	Protocol   string   `json:"protocol" default:"udp" oneOf:"udp,tcp,tls" doc:"udp (with TCP for long answers), tcp, or tls (DNS over TLS, RFC 7858). Queries over tls are never sent without it."`
	ServerName string   `json:"serverName" check:"name" max:"253" doc:"With tls, the name in the certificates of the upstreams, which must be from a CA of the host (SSL_CERT_FILE and SSL_CERT_DIR add others). Empty: the certificate must be for the IP address."`
}

// Log configures the agent's own log, which always goes to stderr and optionally to a rotated file.
type Log struct {
	Level  string `json:"level" default:"info" oneOf:"debug,info,warn,error" live:"" doc:"Minimum level of log lines on stderr."`
	Format string `json:"format" default:"text" oneOf:"text,json" doc:"Format of the log on stderr."`
	File   string `json:"file" path:"logs" doc:"Log file in addition to stderr, below paths.logs when relative. While it is not writable, lines go only to stderr. Empty: none."`
	rotation.Limits
}

// QueryLog configures the log of DNS queries.
type QueryLog struct {
	Sample int    `json:"sample" max:"1000000000" live:"" doc:"Log one in this many DNS queries, with the workload and the name; 1: all, 0: none."`
	File   string `json:"file" default:"dns/queries.log" path:"logs" required:"" doc:"File of the query log, below paths.logs when relative."`
	rotation.Limits
}

// Spool limits the access-log data that waits on disk for a collector.
type Spool struct {
	MaxSize int    `json:"maxSize" default:"1024" max:"1048576" doc:"Megabytes of access-log lines that are buffered on disk for each collector that is unavailable or slow, and for each log file on another disk that is full or fails. 0: only a memory buffer of 4 MB each."`
	MaxAge  int    `json:"maxAge" max:"87600" doc:"Hours for which lines are buffered for their collector; 0: no limit. Lines for files have no limit."`
	OnFull  string `json:"onFull" default:"dropOldest" oneOf:"dropOldest,dropNewest" doc:"Which lines are dropped when the buffer of a collector is full. For files, accessLog.onFull applies."`
}

// ResourceDir is a directory of resource files.
type ResourceDir struct {
	Path string `json:"path" path:"." required:"" doc:"Directory of resource files, below the directory of the config file when relative."`
	Role string `json:"role" check:"name" max:"63" doc:"Role whose create and update permissions limit the resources in these files: one of api.roles or a built-in one. Empty: no limit."`
	// Publish makes the pool the owner of the resources.
	Publish bool   `json:"publish" doc:"Publish the resources to all nodes of the pool (gossip.bind). One of the nodes with the directory publishes it; its files must be valid."`
	ID      string `json:"id" check:"name" max:"253" doc:"ID of a published directory, the same on all nodes that have it. Empty: its path."`
}

// String returns the path, with the role if there is one.
func (d ResourceDir) String() string {
	out := d.Path
	if d.Role != "" {
		out += fmt.Sprintf(" (role %s)", d.Role)
	}
	if d.Publish {
		out += fmt.Sprintf(" (published as %s)", d.PublishID())
	}
	return out
}

// maxDirectoryID limits the ID of a published directory in bytes.
const maxDirectoryID = 253

// PublishID returns the ID that a published directory has in the pool: two nodes with the same ID
// publish the same directory.
func (d ResourceDir) PublishID() string { return cmp.Or(d.ID, filepath.Clean(d.Path)) }

// Receiver is a receiver of access-log lines.
type Receiver struct {
	Name    string `json:"name" check:"name" required:"" unique:"" max:"63" doc:"Name of the receiver."`
	Address string `json:"address" check:"receiver" required:"" unique:"" doc:"TCP address host:port to listen on, or unix:PATH for a socket, below paths.run when relative."`
	File    string `json:"file" path:"logs" required:"" unique:"" doc:"File to write the lines to, below paths.logs when relative."`
	rotation.Limits
	Mode  fs.FileMode `json:"mode" default:"0660" doc:"Permissions of a unix socket, octal."`
	Group string      `json:"group" default:"nearside" check:"group" max:"32" doc:"Group of a unix socket, by name or number; its members may send lines. Empty: the group of the agent."`
	TLS   struct {
		Cert     string `json:"cert" path:"state" doc:"File with the certificate chain for TLS, PEM, below paths.state when relative. New connections use a replaced file within a second. Empty: no TLS."`
		Key      string `json:"key" path:"state" doc:"File with the private key of tls.cert, PEM, below paths.state when relative."`
		ClientCA string `json:"clientCA" path:"state" doc:"File with the CA certificates for client certificates, PEM, below paths.state when relative; clients without one are refused. Empty: no client certificates."`
	} `json:"tls"`
	MaxConnections int `json:"maxConnections" default:"1024" max:"65536" doc:"Maximum number of open connections; further ones are closed immediately and counted. 0: 1024. Each one can use 64 KiB of memory, and all of them share another 64 MiB."`
}

// VIPs configures the virtual addresses of services. Each range is an IPv4 prefix, an IPv6 prefix,
// or both; a missing family has its default.
type VIPs struct {
	Families             string   `json:"families" default:"IPv4" oneOf:"IPv4,DualStack" doc:"Families of the virtual addresses that transparent proxies listen on: IPv4 or DualStack. A mesh with a dataplane whose transparent proxy uses only IPv6 (ipFamilyMode) is always DualStack."`
	ReleaseAfter         int      `json:"releaseAfter" default:"3600" max:"2592000" doc:"Seconds for which the virtual address of a removed service stays reserved."`
	Tag                  []string `json:"tag" default:"240.0.0.0/8,fd00:fd00::/64" check:"range" max:"2" doc:"Ranges of the virtual addresses of kuma.io/service tags: an IPv4 prefix, an IPv6 prefix, or both."`
	MeshService          []string `json:"meshService" default:"241.0.0.0/8,fd00:fd01::/64" check:"range" max:"2" doc:"Ranges of the virtual addresses of MeshServices: an IPv4 prefix, an IPv6 prefix, or both."`
	MeshExternalService  []string `json:"meshExternalService" default:"242.0.0.0/8,fd00:fd02::/64" check:"range" max:"2" doc:"Ranges of the virtual addresses of MeshExternalServices: an IPv4 prefix, an IPv6 prefix, or both."`
	MeshMultiZoneService []string `json:"meshMultiZoneService" default:"243.0.0.0/8,fd00:fd03::/64" check:"range" max:"2" doc:"Ranges of the virtual addresses of MeshMultiZoneServices: an IPv4 prefix, an IPv6 prefix, or both."`
}

// DefaultConfigFile is the config file that is read if none is specified.
const DefaultConfigFile = "/etc/nearside/agent.yaml"

// defaults returns the config without a file, variables, or flags.
func defaults(hostname string) *Config {
	c := new(Config)
	for _, f := range c.fields() {
		f.setDefault(c)
	}
	c.Node.Name = nodeName(hostname)
	return c
}

// field is a key of the config.
type field struct {
	path string // "api.socket.path", or "accessLog.receivers[0].name" for a key of a list item
	tag  reflect.StructTag
	at   reflect.Value // its value in a config
	item bool          // the key belongs to a list item
}

func (f field) has(tag string) bool { _, ok := f.tag.Lookup(tag); return ok }

func (f field) max() int {
	n, _ := strconv.Atoi(f.tag.Get("max"))
	return n
}

// fields returns the keys of c in documentation order.
func (c *Config) fields() []field { return fieldsOf(reflect.ValueOf(c).Elem(), "") }

// fieldsOf returns the keys of a struct, including those of nested structs.
func fieldsOf(v reflect.Value, prefix string) []field {
	var out []field
	for _, f := range keysOf(v, prefix) {
		if f.at.Kind() == reflect.Struct {
			for _, k := range fieldsOf(f.at, f.path+".") {
				out = append(out, k.under(f.tag))
			}
		} else {
			out = append(out, f)
		}
	}
	return out
}

// keysOf returns the entries of one mapping: keys, and nested mappings as structs.
func keysOf(v reflect.Value, prefix string) []field {
	var out []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch name := f.Tag.Get("json"); {
		case name == "-":
		case f.Anonymous:
			for _, k := range keysOf(v.Field(i), prefix) {
				out = append(out, k.under(f.Tag))
			}
		default:
			name, _, _ = strings.Cut(name, ",")
			out = append(out, field{path: prefix + name, tag: f.Tag, at: v.Field(i)})
		}
	}
	return out
}

// under returns the key with the tags that its struct sets for all keys.
func (f field) under(tag reflect.StructTag) field {
	if _, ok := tag.Lookup("live"); ok && !f.has("live") {
		f.tag += ` live:""`
	}
	return f
}

// items returns the keys of each item of a list of structs, and nil for other keys. A list inside
// an item is a key of the item.
func (f field) items() [][]field {
	if !f.hasItems() {
		return nil
	}
	var out [][]field
	for i := range f.at.Len() {
		out = append(out, f.itemKeys(f.at.Index(i), i))
	}
	return out
}

// hasItems reports whether the key is a list of structs.
func (f field) hasItems() bool {
	return f.at.Kind() == reflect.Slice && f.at.Type().Elem().Kind() == reflect.Struct
}

func (f field) itemKeys(item reflect.Value, i int) []field {
	keys := fieldsOf(item, fmt.Sprintf("%s[%d].", f.path, i))
	for i := range keys {
		keys[i].item = true
	}
	return keys
}

// unprivileged sets default paths that a user without privileges can write: state and logs below
// lasting, and the others below base.
func (c *Config) unprivileged(base, lasting string) {
	c.Paths.Run, c.Paths.State, c.Paths.Logs = filepath.Join(base, "run"), filepath.Join(lasting, "state"),
		filepath.Join(lasting, "logs")
	c.Resources.Dir = []ResourceDir{{Path: filepath.Join(base, "resources")}}
	c.API.Socket.Group, c.XDS.Socket.Group = "", ""
}

// nodeName converts a host name to a valid node name: lower case, with invalid characters replaced
// by "-".
func nodeName(hostname string) string {
	clean := regexp.MustCompile(`[^a-z0-9.-]`).ReplaceAllLiteralString(strings.ToLower(hostname), "-")
	clean = strings.Trim(clean[:min(len(clean), 253)], "-.")
	if checkText("name", clean) != "" {
		return "node"
	}
	return clean
}

// Options returns the options for mesh views.
func (c *VIPs) Options() virtualip.Options {
	ranges := func(texts []string) (out virtualip.Range) {
		for _, s := range texts {
			if p, err := netip.ParsePrefix(s); err == nil && p.Addr().Is4() {
				out.V4 = p
			} else if err == nil {
				out.V6 = p
			}
		}
		return out
	}
	return virtualip.Options{
		Ranges: virtualip.Ranges{
			Tag: ranges(c.Tag), MeshService: ranges(c.MeshService),
			MeshExternalService: ranges(c.MeshExternalService), MeshMultiZoneService: ranges(c.MeshMultiZoneService),
		},
		IPv6: c.Families == resource.IPFamilyDualStack, Hold: time.Duration(c.ReleaseAfter) * time.Second,
	}
}
