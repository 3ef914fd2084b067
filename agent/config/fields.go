package config

import "github.com/nearside-mesh/nearside/agent/resource"

// field is one key of the config: its place, its words and its value. The decoder, the environment, --set, the JSON
// Schema, "config show" and the validation all work on the lists of fields.
type field struct {
	path  string // "api.socket.path"; the key alone for items of a list
	doc   string
	live  bool // a changed value takes effect on SIGHUP; else it needs a restart
	value value
}

// emptySections are keys that are reserved for later and hold nothing yet.
var emptySections = [...]string{"identity"}

const (
	maxNodeName = 253
	maxZone     = 63
)

// fields binds every key to its place in c, in the order of the documentation.
func (c *Config) fields() []field {
	run, state, logs := &c.Paths.Run, &c.Paths.State, &c.Paths.Logs
	f := []field{
		{path: "node.name", doc: "Name of this node, unique in the cluster. Default: the host name.", value: text{p: &c.Node.Name, check: checkDNSName, max: maxNodeName}},
		{path: "node.zone", doc: "Zone of this node.", value: text{p: &c.Node.Zone, check: checkDNSName, max: maxZone}},
		{path: "paths.run", doc: "Directory of the sockets.", value: pathText{p: run, required: true}},
		{path: "paths.state", doc: "Directory of what survives a restart.", value: pathText{p: state, required: true}},
		{path: "paths.logs", doc: "Directory of log files.", value: pathText{p: logs, required: true}},
		{path: "resources.dir", doc: "Directory of resource files (*.yaml, *.yml, *.json), watched. What it holds is read-only over the API.", value: pathText{p: &c.Resources.Dir, required: true}},
		{path: "api.socket.path", doc: "Unix socket of the HTTP API, below paths.run when relative.", value: pathText{p: &c.API.Socket.Path, below: run, required: true, socket: true}},
		{path: "api.socket.mode", doc: "Permissions of the API socket, octal.", value: mode{p: &c.API.Socket.Mode}},
		{path: "api.socket.group", doc: "Group of the API socket, by name or number; its members may write. Empty: the agent's own group.", value: text{p: &c.API.Socket.Group, check: checkGroup, max: 32}},
		{path: "api.tcp", doc: "Loopback address that serves the same API, read-only unless api.tokenFile is set. Empty: off.", value: text{p: &c.API.TCP, check: optional(CheckLoopback)}},
		{path: "api.tokenFile", doc: "File with the bearer token that allows writes over TCP, below paths.state when relative.", value: pathText{p: &c.API.TokenFile, below: state}},
		{path: "xds.socket.path", doc: "Unix socket that Envoys take their config from, below paths.run when relative.", value: pathText{p: &c.XDS.Socket.Path, below: run, required: true, socket: true}},
		{path: "xds.socket.mode", doc: "Permissions of the xDS socket, octal.", value: mode{p: &c.XDS.Socket.Mode}},
		{path: "xds.tcp", doc: "TCP address for Envoys that cannot open the socket. It has no authentication: keep it on loopback or a private network. Certificates are not sent over it. Empty: off.", value: text{p: &c.XDS.TCP, check: optional(checkHostPort)}},
		{path: "dns.listen", doc: "UDP and TCP address of the resolver. Empty: off.", value: text{p: &c.DNS.Listen, check: optional(checkHostPort)}},
		{path: "dns.upstreams", doc: "Resolvers for other names, IP or IP:port. Empty: those of /etc/resolv.conf.", value: textList{p: &c.DNS.Upstreams, check: checkUpstream, max: 16}},
		{path: "dns.cacheSize", doc: "Answers of upstreams that are kept; 0 keeps none.", value: integer{p: &c.DNS.CacheSize, max: 10_000_000}},
		{path: "accessLog.receivers", doc: "TCP receivers of access-log lines.", value: newReceivers(&c.AccessLog.Receivers, logs)},
	}
	f = append(f, c.AccessLog.Files.fields("accessLog.files.")...)
	f = append(f, field{path: "auditLog.profile", doc: "How much of the requests to the API is logged.", value: text{p: &c.AuditLog.Profile, oneOf: []string{"Default", "WriteRequestBodies", "AllRequestBodies", "None"}}})
	f = append(f, c.AuditLog.RotationConfig.fields("auditLog.")...)
	return append(f,
		field{path: "gossip.bind", doc: "Address of the gossip pool. Empty: the agent stands alone.", value: text{p: &c.Gossip.Bind, check: optional(checkHostPort)}},
		field{path: "gossip.advertise", doc: "Address that others reach gossip.bind at. Empty: gossip.bind.", value: text{p: &c.Gossip.Advertise, check: optional(checkHostPort)}},
		field{path: "gossip.join", doc: "Members to join through, host:port.", value: textList{p: &c.Gossip.Join, check: checkHostPort, max: 256}},
		field{path: "gossip.keyringFile", doc: "File with the keys of the gossip traffic, below paths.state when relative.", value: pathText{p: &c.Gossip.KeyringFile, below: state}},
		field{path: "gossip.cluster", doc: "Name of the cluster; agents of another cluster are refused.", value: text{p: &c.Gossip.Cluster, check: checkDNSName, max: maxZone}},
		field{path: "trust.mode", doc: "What happens to records without a valid signature.", value: text{p: &c.Trust.Mode, oneOf: []string{"off", "warn", "enforce"}}},
		field{path: "trust.file", doc: "Trust file, below paths.state when relative.", value: pathText{p: &c.Trust.File, below: state}},
		field{path: "mesh.autoReachableBackends", doc: "Derive reachable backends from MeshTrafficPermission.", value: boolean{p: &c.Mesh.AutoReachableBackends}},
		field{path: "mesh.flatNetwork", doc: "Reach the dataplanes of other zones directly, also where their zone has a ZoneIngress.", value: boolean{p: &c.Mesh.FlatNetwork}},
		field{path: "vips.families", doc: "Families of virtual addresses that transparent proxies listen at: IPv4 or DualStack.", value: text{p: &c.VIPs.Families, oneOf: []string{resource.IPFamilyIPv4, resource.IPFamilyDualStack}}},
		field{path: "vips.releaseAfter", doc: "Seconds that the virtual address of a service that is gone stays its own.", value: integer{p: &c.VIPs.ReleaseAfter, max: 30 * 24 * 3600}},
		c.VIPs.field("tag", "kuma.io/service tags", &c.VIPs.Tag),
		c.VIPs.field("meshService", "MeshServices", &c.VIPs.MeshService),
		c.VIPs.field("meshExternalService", "MeshExternalServices", &c.VIPs.MeshExternalService),
		c.VIPs.field("meshMultiZoneService", "MeshMultiZoneServices", &c.VIPs.MeshMultiZoneService),
		field{path: "log.level", doc: "Least severity that is logged to stderr.", live: true, value: text{p: &c.Log.Level, oneOf: []string{"debug", "info", "warn", "error"}}},
		field{path: "log.format", doc: "Form of the log on stderr.", value: text{p: &c.Log.Format, oneOf: []string{"text", "json"}}},
	)
}

// fields binds the rotation limits; their meanings are those of the spec (audit-log-rotation).
func (r *RotationConfig) fields(prefix string) []field {
	return []field{
		{path: prefix + "maxFileSize", doc: "Megabytes after which the file is rotated; 0: no limit.", value: integer{p: &r.MaxFileSize, max: 1 << 20}},
		{path: prefix + "maxFiles", doc: "Rotated files that are kept; 0: all.", value: integer{p: &r.MaxFiles, max: 100_000}},
		{path: prefix + "maxFileAge", doc: "Days that rotated files are kept; 0: for ever.", value: integer{p: &r.MaxFileAge, max: 36_500}},
	}
}

// fields binds the keys of one receiver.
func (r *ReceiverConfig) fields(logs *string) []field {
	return append([]field{
		{path: "name", doc: "Name of the receiver.", value: text{p: &r.Name, check: checkDNSName, max: maxZone}},
		{path: "address", doc: "TCP address it listens on.", value: text{p: &r.Address, check: checkHostPort}},
		{path: "file", doc: "File it writes, below paths.logs when relative.", value: pathText{p: &r.File, below: logs, required: true}},
	}, r.RotationConfig.fields("")...)
}
