package match

import (
	"net/netip"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// Seen is what Envoy knows about a connection when it selects a filter chain, after the listener
// filters.
type Seen struct {
	Dst    netip.AddrPort // the original destination if a listener filter restored it, or else the listener's address
	Src    netip.AddrPort
	Direct netip.AddrPort // the peer of the socket
	// ServerName is the SNI in lower case, or "" if the client sends none or no TLS inspector runs.
	ServerName string
	// Transport is "tls" if a TLS inspector has seen a ClientHello, or else "raw_buffer".
	Transport string
	// Protocols holds the ALPN of a TLS client, or the result of an HTTP inspector.
	Protocols []string
	Local     bool
	nameKeys  []string // keys of filter state objects that contain ServerName
}

// Envoy's transport protocols.
const (
	transportTLS = "tls"
	transportRaw = "raw_buffer"
)

// unmap converts an IPv4-mapped address to IPv4, as Envoy does for accepted connections.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// isLocal reports whether Envoy treats the client as local: its address is a canonical loopback
// address or the dialed address.
func (s *Seen) isLocal() bool {
	src := s.Src.Addr()
	return s.Local || src == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || src == netip.IPv6Loopback() ||
		src.IsValid() && src == s.Dst.Addr()
}

// sourceType returns Envoy's source type for isLocal.
func (s *Seen) sourceType() listenerv3.FilterChainMatch_ConnectionSourceType {
	if s.isLocal() {
		return listenerv3.FilterChainMatch_SAME_IP_OR_LOOPBACK
	}
	return listenerv3.FilterChainMatch_EXTERNAL
}

// wildcardKeys yields the keys of wildcards for a server name, longest first, until yield returns
// false. The key of "*.example.com" is ".example.com". As in Envoy, the search starts after the
// first byte, and a trailing dot is not a suffix.
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
