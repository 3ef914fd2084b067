package policy

import (
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// InForce is what the policies of one kind let a proxy do as a whole, for those who look at the
// proxy.
type InForce struct {
	Kind    string  // of the policies
	Mode    string  // in the kind's own words
	Decides Written // what gives the mode, which is the Mesh where no policy does
	// Permits are what may be done where the mode leaves that to be said, in the order of protocol,
	// value and port.
	Permits []Permit
}

// Permit is one thing that a proxy may do, whoever asks for it.
type Permit struct {
	Protocol string
	Value    string // the destination, as policies write it
	Port     uint32 // 0: all ports
	Cluster  string // whose statistics count it
	// Pinned is true where the proxy looks the destination up by itself, so that no address that the
	// workload dials leads anywhere else.
	Pinned bool
	// virtual addresses of the destination at which the proxy takes the connections; none: at its own
	At         []netip.Addr
	Reaches    string // which addresses it leads to, in words
	IPv4, IPv6 bool   // the address families in which it acts
	Sources    []Written
}

// Written is a field of a resource that says something.
type Written struct {
	Resource resource.Key
	Field    string // its path, as in spec.default.appendMatch[0]
}

// Exit is something that proxies of a mesh reach through the egresses of a zone without a service
// that stands for it.
type Exit struct {
	ServerName string // by which proxies ask for it; at most 255 bytes, in lower case
	Name       string // of the cluster, for those who read statistics
	Port       uint32 // 0: any
	// Host is the address or domain that it leads to. "": to the address that a proxy names in a
	// tunnel.
	Host string
	// Within bounds the addresses that a proxy may name. Zero: any, but those of the egress itself and
	// of its link.
	Within netip.Prefix
}

// TunnelHeader is the header of a tunnel in which a proxy names the address; it is the one that
// Envoy looks at when it is not told of another.
const TunnelHeader = "x-envoy-original-dst-host"
