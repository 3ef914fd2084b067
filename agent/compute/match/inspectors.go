package match

import (
	"fmt"
	"net/netip"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// InspectorsOf returns the TLS and HTTP inspectors of a listener, or nil. known is false if another
// filter may have the same effect.
func InspectorsOf(m *listenerv3.Listener) (tls, http *listenerv3.ListenerFilter, known bool) {
	for _, f := range m.GetListenerFilters() {
		switch f.GetTypedConfig().GetTypeUrl() {
		case tlsInspectorURL:
			tls = f
		case httpInspectorURL:
			http = f
		case OriginalDstURL, proxyProtocolURL:
		default:
			return nil, nil, false
		}
	}
	return tls, http, true
}

// NeedsInspector returns the listener filter that a match needs but that is missing, or disabled
// for a port (0 means any port), and the field that needs it.
func NeedsInspector(m *listenerv3.FilterChainMatch, port uint32,
	tls, http *listenerv3.ListenerFilter) (why, field string) {
	off := func(f *listenerv3.ListenerFilter) string {
		if f == nil {
			return "is missing"
		}
		if port != 0 && disabled(f.GetFilterDisabled(), netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port)), 0) {
			return fmt.Sprintf("is off for port %d", port)
		}
		return ""
	}
	noTLS, noHTTP := off(tls), off(http)
	switch {
	case len(m.GetServerNames()) > 0 && noTLS != "":
		return "server names need the tls_inspector, which " + noTLS, "serverNames"
	case m.GetTransportProtocol() == transportTLS && noTLS != "":
		return "transport protocol tls needs the tls_inspector, which " + noTLS, "transportProtocol"
	case len(m.GetApplicationProtocols()) == 0 || slices.Contains(m.GetApplicationProtocols(), ""):
		return "", ""
	case m.GetTransportProtocol() == transportRaw && noHTTP != "":
		return "application protocols of plain connections need the http_inspector, which " + noHTTP, "applicationProtocols"
	case m.GetTransportProtocol() == "" && noTLS != "" && noHTTP != "":
		return "application protocols need the tls_inspector or the http_inspector, and the one " + noTLS + ", the other " +
			noHTTP, "applicationProtocols"
	}
	return "", ""
}
