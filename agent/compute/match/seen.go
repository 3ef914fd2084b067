package match

import (
	"net/netip"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// Seen is what Envoy knows of a connection when it chooses a filter chain: what the listener
// filters have found out.
type Seen struct {
	Dst    netip.AddrPort // the original destination where a listener filter has restored it, else the listener's own
	Src    netip.AddrPort
	Direct netip.AddrPort // the peer of the socket
	// ServerName is the SNI in lower case; "" where the client sends none or no TLS inspector runs.
	ServerName string
	// Transport is "tls" where a TLS inspector has seen a ClientHello, else "raw_buffer".
	Transport string
	// Protocols are the ALPN of a TLS client, or what an HTTP inspector has found.
	Protocols []string
	Local     bool
}

// The transport protocols that Envoy tells apart.
const (
	transportTLS = "tls"
	transportRaw = "raw_buffer"
)

// unmap takes an IPv4-mapped address for the IPv4 one, as Envoy does with what it accepts.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// isLocal says whether Envoy takes the client to be on the same host: its address is a canonical
// loopback address or the one that it dialled.
func (s *Seen) isLocal() bool {
	src := s.Src.Addr()
	return s.Local || src == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || src == netip.IPv6Loopback() ||
		src.IsValid() && src == s.Dst.Addr()
}

// sourceType is isLocal as Envoy names it.
func (s *Seen) sourceType() listenerv3.FilterChainMatch_ConnectionSourceType {
	if s.isLocal() {
		return listenerv3.FilterChainMatch_SAME_IP_OR_LOOPBACK
	}
	return listenerv3.FilterChainMatch_EXTERNAL
}

// wildcardKeys calls yield with the keys under which wildcards for a server name stand, the longest
// first, until it returns false. "*.example.com" stands under ".example.com". As in Envoy the
// search begins behind the first byte, and a dot at the end is no suffix.
func wildcardKeys(name string, yield func(key string) bool) {
	for pos := 0; pos < len(name); {
		i := strings.IndexByte(name[pos+1:], '.')
		if i < 0 {
			return
		}
		if pos += 1 + i; pos >= len(name)-1 || !yield(name[pos:]) {
			return
		}
	}
}
