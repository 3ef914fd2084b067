package policy

import "net/netip"

// Exit is something that proxies of a mesh reach through the egresses of a zone without a service that stands for it.
type Exit struct {
	ServerName string // by which proxies ask for it; at most 255 bytes, in lower case
	Name       string // of the cluster, for those who read statistics
	Port       uint32 // 0: any
	// Host is the address or domain that it leads to. "": to the address that a proxy names in a tunnel.
	Host string
	// Within bounds the addresses that a proxy may name. Zero: any, but those of the egress itself and of its link.
	Within netip.Prefix
}

// TunnelHeader is the header of a tunnel in which a proxy names the address; it is the one that Envoy looks at when it is
// not told of another.
const TunnelHeader = "x-envoy-original-dst-host"
