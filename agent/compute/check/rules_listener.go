package check

//lint:file-ignore SA1019 fields that Envoy still reads are checked

import (
	"fmt"
	"net/netip"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// checkListener checks the fields of a listener itself.
func checkListener(s *subject, m *listenerv3.Listener) {
	if m.GetApiListener() == nil {
		checkAddress(s, m)
		if len(m.GetFilterChains()) == 0 && m.GetDefaultFilterChain() == nil && m.GetFcdsConfig() == nil &&
			!isUDP(m.GetAddress()) {
			s.report(2, finding.Reject, "filterChains", "there is no filter chain: add one, or a default filter chain")
		}
	}
	if m.GetApiListener() != nil { // Envoy acknowledges it
		s.report(23, finding.Unusable, "apiListener",
			"Envoy ignores an API listener, which is for gRPC clients and Envoy Mobile: set an address and filter chains")
	}
	if m.GetFcdsConfig() != nil && m.GetFilterChainMatcher() == nil {
		s.reportNewer(2, finding.Reject, "fcdsConfig", "discovered filter chains need a filter_chain_matcher")
	}
	checkChains(s, m)
	checkInspectors(s, m)
	s.out.socket = socketText(m)
}

func isUDP(a *corev3.Address) bool {
	return a.GetSocketAddress().GetProtocol() == corev3.SocketAddress_UDP
}

// checkAddress checks and records the addresses of a listener.
func checkAddress(s *subject, m *listenerv3.Listener) {
	a := m.GetAddress()
	if m.GetInternalListener() != nil {
		checkInternal(s, m)
		return
	}
	if a == nil || a.GetAddress() == nil {
		s.report(1, finding.Reject,
			"address", "the listener has no address: set a socket address, a pipe, or internal_listener")
		return
	}
	if a.GetEnvoyInternalAddress() != nil {
		s.report(17, finding.Reject, "address", "an internal address needs internal_listener")
		return
	}
	if isUDP(a) {
		checkUDP(s, m)
	}
	own(s, m, a, "address")
	for i, more := range m.GetAdditionalAddresses() {
		at := finding.Item("additionalAddresses", i, "address")
		if isUDP(more.GetAddress()) != isUDP(a) {
			s.report(13, finding.Reject, at, "all addresses of a listener must use one protocol, and the first uses %s",
				protocolText(a))
		}
		own(s, m, more.GetAddress(), at)
	}
}

func protocolText(a *corev3.Address) string {
	if isUDP(a) {
		return "UDP"
	}
	return "TCP"
}

// own records an address of a listener and checks its form.
func own(s *subject, m *listenerv3.Listener, a *corev3.Address, at string) {
	if p := a.GetPipe(); p != nil {
		s.out.binds = append(s.out.binds, bind{address: "unix:" + p.GetPath(), pointer: s.pointer(at), binds: true})
		return
	}
	sa := a.GetSocketAddress()
	if sa == nil {
		return
	}
	if hasPortName(sa) {
		s.report(1, finding.Reject, at+"/socketAddress/namedPort", "a listener's port must be a number: set port_value")
		return
	}
	if sa.GetResolverName() != "" {
		return // depends on an extension
	}
	addr, err := netip.ParseAddr(sa.GetAddress())
	if err != nil {
		s.report(1, finding.Reject, at+"/socketAddress/address", "%q is not an IP address", clip.Value(sa.GetAddress()))
		return
	}
	if sa.GetIpv4Compat() && (!addr.Is6() || addr != netip.IPv6Unspecified() && !addr.Is4In6()) {
		s.report(14, finding.Reject, at+"/socketAddress/ipv4Compat",
			"ipv4_compat is for :: and IPv4-mapped addresses, not for %s", addr)
	}
	if addr.Is4In6() && !sa.GetIpv4Compat() && match.BoundToPort(m) {
		s.report(25, finding.Reject, at+"/socketAddress/address",
			"%s is an IPv4 address in IPv6 form, which no system lets Envoy bind for IPv6 only: use %s", addr, addr.Unmap())
	}
	host := addr.String()
	s.out.binds = append(s.out.binds, bind{
		address: bindAddress(isUDP(a), netip.AddrPortFrom(addr, uint16(sa.GetPortValue()))),
		pointer: s.pointer(at), host: host, port: sa.GetPortValue(), udp: isUDP(a), binds: match.BoundToPort(m),
		special: m.GetTransparent().GetValue(),
	})
}

// bindAddress returns the canonical form of an address.
func bindAddress(udp bool, a netip.AddrPort) string {
	if udp {
		return "UDP " + a.String()
	}
	return "TCP " + a.String()
}

// checkInternal checks a listener for connections from inside the proxy.
func checkInternal(s *subject, m *listenerv3.Listener) {
	if m.GetAddress() != nil && m.GetAddress().GetEnvoyInternalAddress() == nil {
		s.report(16, finding.Reject, "address", "an internal listener has no network address: use envoy_internal_address")
	}
	for field, set := range map[string]bool{
		"enableMptcp": m.GetEnableMptcp(), "enableReusePort": m.GetEnableReusePort() != nil, "freebind": m.GetFreebind() !=
			nil, "socketOptions": len(m.GetSocketOptions()) > 0, "tcpBacklogSize": m.GetTcpBacklogSize() != nil,
		"tcpFastOpenQueueLength": m.GetTcpFastOpenQueueLength() != nil, "transparent": m.GetTransparent() != nil,
	} {
		if set {
			s.report(16, finding.Reject, field, "an internal listener has no socket for this setting")
		}
	}
}

// checkUDP checks a UDP listener.
func checkUDP(s *subject, m *listenerv3.Listener) {
	quic := m.GetUdpListenerConfig().GetQuicOptions() != nil
	if !quic && len(m.GetFilterChains()) > 0 {
		s.report(18, finding.Reject,
			"filterChains", "a UDP listener without QUIC has no connections, and so no filter chains: use listener_filters")
	}
	if m.GetEnableReusePort() != nil && !m.GetEnableReusePort().GetValue() {
		s.report(18, finding.Reject,
			"enableReusePort", "a UDP listener needs reuse_port if Envoy runs more than one worker")
	}
	for i, c := range m.GetFilterChains() {
		if quic && c.GetTransportSocket() == nil {
			s.report(18, finding.Reject, finding.Item("filterChains", i, "transportSocket"),
				"a QUIC listener requires a transport socket")
		}
		if n := len(c.GetFilters()); quic && n > 0 && c.GetFilters()[n-1].GetTypedConfig().GetTypeUrl() != match.HcmURL {
			s.report(18, finding.Reject, finding.Item("filterChains", i, "filters", index(n-1)),
				"with QUIC the last filter must be an HTTP connection manager")
		}
	}
}

// socketText returns the settings that an update of a listener must not change.
func socketText(m *listenerv3.Listener) string {
	reuse := m.GetEnableReusePort() == nil || m.GetEnableReusePort().GetValue()
	if m.GetEnableReusePort() == nil && m.GetReusePort() {
		reuse = true
	}
	text := strconv.FormatBool(reuse)
	for _, o := range m.GetSocketOptions() {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(o)
		text += fmt.Sprintf(" %x%v", b, err)
	}
	return text
}

// checkListenerFilter checks one listener filter.
func checkListenerFilter(s *subject, m *listenerv3.ListenerFilter) {
	if m.GetTypedConfig() == nil && m.GetConfigDiscovery() == nil {
		s.report(23, finding.Reject, "typedConfig", "listener filter %q has no typed_config, and Envoy needs its type",
			clip.Value(m.GetName()))
	}
}

// checkInspectors reports chains that can never match because their listener filter is missing.
func checkInspectors(s *subject, m *listenerv3.Listener) {
	if m.GetFilterChainMatcher() != nil {
		return
	}
	restored := false
	for i, f := range m.GetListenerFilters() {
		restored = restored || f.GetTypedConfig().GetTypeUrl() == match.OriginalDstURL
		if f.GetFilterDisabled() != nil && !restored && m.GetUseOriginalDst().GetValue() {
			s.report(29, finding.Warning, finding.Item("listenerFilters", i, "filterDisabled"),
				"this matches the port before original_dst restores the original destination, "+
					"so it sees the redirected port: put original_dst first")
		}
	}
	tls, http, known := match.InspectorsOf(m)
	if !known {
		return
	}
	dead := 0
	var report []func(finding.Severity)
	for i, c := range m.GetFilterChains() {
		why, field := match.NeedsInspector(c.GetFilterChainMatch(),
			c.GetFilterChainMatch().GetDestinationPort().GetValue(), tls, http)
		if why != "" {
			dead++
			report = append(report, func(sev finding.Severity) {
				s.report(27, sev, finding.Item("filterChains", i, "filterChainMatch", field),
					"no connection matches filter chain %q: %s", clip.Value(match.ChainName(c, i)), why)
			})
		}
	}
	severity := finding.Warning
	if dead > 0 && dead == len(m.GetFilterChains()) && m.GetDefaultFilterChain() == nil {
		severity = finding.Unusable
	}
	for _, r := range report {
		r(severity)
	}
}
