package policy

import (
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// InForce describes the proxy-wide effect of the policies of one kind, for inspection.
type InForce struct {
	Kind    string   // of the policies
	Mode    string   // as named by the kind
	Decides FieldRef // the field that sets the mode; a field of the Mesh if no policy does
	// Permits are the destinations permitted in this mode, sorted by protocol, value, and port.
	Permits []Permit
}

// Permit is a destination that every client of the proxy may use.
type Permit struct {
	Protocol string
	Value    string // the destination, as written in the policy
	Port     uint32 // 0: all ports
	Cluster  string // the cluster that counts it in its statistics
	// Pinned is true if the proxy resolves the destination itself, so the address that the workload
	// dials does not affect where the connection goes.
	Pinned bool
	// At holds virtual addresses at which the proxy accepts connections to the destination. If it
	// is empty, the proxy accepts them at the destination's own addresses.
	At         []netip.Addr
	Reaches    string // description of the addresses it permits
	IPv4, IPv6 bool   // the address families to which it applies
	Sources    []FieldRef
}

// FieldRef is a field of a resource.
type FieldRef struct {
	Resource resource.Key
	Field    string // its path, such as spec.default.appendMatch[0]
}

// Exit is a destination that proxies reach through zone egresses and that has no service.
type Exit struct {
	ServerName string // the server name that selects it; at most 255 bytes, lower case
	Name       string // of the cluster, for statistics
	Port       uint32 // 0: any
	// Host is the destination's address or domain. If it is empty, the proxy names an address in a
	// tunnel.
	Host string
	// Within limits the addresses that a proxy may name. Zero means any address except those of the
	// egress itself and its link.
	Within netip.Prefix
}

// TunnelHeader is the tunnel header in which a proxy names the address. It is Envoy's default for
// original destination clusters.
const TunnelHeader = "x-envoy-original-dst-host"
