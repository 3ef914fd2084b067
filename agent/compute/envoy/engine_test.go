package envoy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"
)

func findStep(t *match.Trace, l match.Level) *match.Step {
	for i := range t.Steps {
		if t.Steps[i].Level == l {
			return &t.Steps[i]
		}
	}
	return nil
}

// TestWhy checks that a trace explains for each eliminated chain whether it does not match or is
// hidden by a more specific match.
func TestWhy(t *testing.T) {
	config := match.Open(snapshot(t, passthrough(policies["E"]...), originalDst("tcp_8")), nil)
	got := config.Connection(through("10.1.0.1:80", match.PlainBytes, ""))
	if got.Outcome != match.NoChain || got.Flag != "NR" || got.At != match.LevelTransportProtocol {
		t.Fatalf("%+v", got)
	}
	ip := findStep(got, match.LevelDestinationIP)
	if ip == nil || ip.Input != "10.1.0.1" || !slices.Equal(ip.Candidates, []string{"10.1.0.0/16", "10.0.0.0/8"}) ||
		ip.Choice != "10.1.0.0/16" {
		t.Fatalf("the step is %+v", ip)
	}
	if want := []match.Eliminated{{Name: "tcp_8",
		Why: "fits with 10.0.0.0/8, but 10.1.0.0/16 is more specific and final"}}; !slices.Equal(ip.Eliminated, want) {
		t.Errorf("eliminated: %+v, want %+v", ip.Eliminated, want)
	}
	last := findStep(got, match.LevelTransportProtocol)
	if last == nil || last.Choice != "" ||
		!slices.Equal(last.Eliminated, []match.Eliminated{{Name: "tls_16", Why: "wants tls"}}) {
		t.Errorf("the step is %+v", last)
	}
}

// TestTraceEqualsFind checks that a trace has the same result as Find, and that every chain that is
// not chosen is eliminated exactly once.
func TestTraceEqualsFind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := passthrough(withoutConflicts(drawChains(t))...)
		config := match.Open(sealed(l), nil)
		for range 10 {
			conn := &match.Conn{
				Dst: drawAddrPort(t, "dst", []uint16{80, 443, 3306, 22}), Src: drawAddrPort(t, "src", []uint16{1000, 2000, 3000}),
				Entry: netip.MustParseAddrPort("127.0.0.1:15001"), First: match.FirstBytes(rapid.IntRange(0, 4).Draw(t, "first")),
				SNI: rapid.SampledFrom(someHosts).Draw(t, "sni"), ALPN: drawSome(t, "alpn", 2, sample(someALPN, "alpn")),
			}
			got, want := config.Connection(conn), match.NewListener(l).Find(conn)
			if (got.Outcome == match.NoChain) != (want.Outcome == match.NoChain) ||
				want.Outcome == match.NoChain && got.At != want.At {
				t.Fatalf("%+v: explained as %v at %v, found %v at %v", conn, got.Outcome, got.At, want.Outcome, want.At)
			}
			fell := map[string]int{}
			for _, s := range got.Steps {
				for _, e := range s.Eliminated {
					if s.Level > match.LevelInspection && s.Level < match.LevelChain {
						fell[e.Name]++
					}
				}
			}
			for i, c := range l.FilterChains {
				n := 1
				if i == want.Index {
					n = 0
				}
				if fell[c.Name] != n {
					t.Fatalf("%+v: chain %s fell %d times, want %d\n%+v", conn, c.Name, fell[c.Name], n, got.Steps)
				}
			}
			if want.Index >= 0 && chosen(got, match.LevelChain) != l.FilterChains[want.Index].Name {
				t.Fatalf("explained as %q, found %q", chosen(got, match.LevelChain), l.FilterChains[want.Index].Name)
			}
		}
	})
}

// withoutConflicts drops chains that have a match of an earlier chain, because Envoy would reject
// the listener.
func withoutConflicts(chains []*listenerv3.FilterChain) []*listenerv3.FilterChain {
	var out []*listenerv3.FilterChain
	seen := map[row]bool{}
	for _, c := range chains {
		rows := rowsOf([]*listenerv3.FilterChain{c})
		if slices.ContainsFunc(rows, func(r row) bool { return seen[r] }) {
			continue
		}
		for _, r := range rows {
			seen[r] = true
		}
		out = append(out, c)
	}
	return out
}

func sealed(l *listenerv3.Listener) *envoy.Snapshot {
	r, err := envoy.NewResource(l)
	if err != nil {
		panic(err)
	}
	s := &envoy.Snapshot{}
	s[envoy.KindListener] = []*envoy.Resource{r}
	return s
}

// TestInspection checks what listener filters detect for each kind of first bytes.
func TestInspection(t *testing.T) {
	tls, http := listenerFilter("tls", &tlsinspectorv3.TlsInspector{}),
		listenerFilter("http", &httpinspectorv3.HttpInspector{})
	dst := listenerFilter("dst", &originaldstv3.OriginalDst{})
	for _, c := range []struct {
		name    string
		filters []*listenerv3.ListenerFilter
		edit    func(*listenerv3.Listener)
		conn    match.Conn
		outcome match.Outcome
		want    string // transport, server name, protocols, destination
	}{
		{"TLS", []*listenerv3.ListenerFilter{tls, http}, nil,
			match.Conn{First: match.TLSHello, SNI: "A.com", ALPN: []string{"h2"}}, match.Accepted, "tls a.com h2 1.1.1.1:1"},
		{"no inspector", nil, nil, match.Conn{First: match.TLSHello, SNI: "a.com"}, match.Accepted, "raw_buffer   1.1.1.1:1"},
		{"HTTP before TLS", []*listenerv3.ListenerFilter{http, tls}, nil, match.Conn{First: match.TLSHello, SNI: "a.com"},
			match.Accepted, "tls a.com  1.1.1.1:1"},
		{"HTTP/1.0", []*listenerv3.ListenerFilter{tls, http}, nil, match.Conn{First: match.HTTP10}, match.Accepted,
			"raw_buffer  http/1.0 1.1.1.1:1"},
		{"h2c", []*listenerv3.ListenerFilter{tls, http}, nil, match.Conn{First: match.H2C}, match.Accepted,
			"raw_buffer  h2c 1.1.1.1:1"},
		{"plain", []*listenerv3.ListenerFilter{tls, http}, nil, match.Conn{First: match.PlainBytes}, match.Accepted,
			"raw_buffer   1.1.1.1:1"},
		{"server first", []*listenerv3.ListenerFilter{tls}, nil, match.Conn{First: match.ServerFirst}, match.TimedOut, ""},
		{"server first, HTTP inspector", []*listenerv3.ListenerFilter{http}, nil, match.Conn{First: match.ServerFirst},
			match.TimedOut, ""},
		{"server first, no inspector", []*listenerv3.ListenerFilter{dst}, nil, match.Conn{First: match.ServerFirst,
			Entry: netip.MustParseAddrPort("127.0.0.1:2")}, match.Accepted, "raw_buffer   1.1.1.1:1"},
		{"server first, off for another port",
			[]*listenerv3.ListenerFilter{listenerFilter("tls", &tlsinspectorv3.TlsInspector{}, 2)}, nil,
			match.Conn{First: match.ServerFirst}, match.TimedOut, ""},
		{"server first, off for the port",
			[]*listenerv3.ListenerFilter{dst, listenerFilter("tls", &tlsinspectorv3.TlsInspector{}, 2, 1)}, nil,
			match.Conn{First: match.ServerFirst, Entry: netip.MustParseAddrPort("127.0.0.1:9")}, match.Accepted,
			"raw_buffer   1.1.1.1:1"},
		{"off for the port, before the destination is restored",
			[]*listenerv3.ListenerFilter{listenerFilter("tls", &tlsinspectorv3.TlsInspector{}, 1), dst}, nil,
			match.Conn{First: match.ServerFirst, Entry: netip.MustParseAddrPort("127.0.0.1:9")}, match.TimedOut, ""},
		{"going on after the time is up", []*listenerv3.ListenerFilter{tls}, func(l *listenerv3.Listener) {
			l.ContinueOnListenerFiltersTimeout, l.UseOriginalDst = true, wrapperspb.Bool(true)
			l.ListenerFiltersTimeout = durationpb.New(time.Second)
		}, match.Conn{First: match.ServerFirst, Entry: netip.MustParseAddrPort("127.0.0.1:9")}, match.Accepted,
			"raw_buffer   127.0.0.1:9"},
		{"no end", []*listenerv3.ListenerFilter{tls},
			func(l *listenerv3.Listener) { l.ListenerFiltersTimeout = durationpb.New(0) }, match.Conn{First: match.ServerFirst},
			match.TimedOut, ""},
		{"not",
			[]*listenerv3.ListenerFilter{{Name: "tls", ConfigType: tls.ConfigType, FilterDisabled: not(portPredicate(1))}}, nil,
			match.Conn{First: match.TLSHello, SNI: "a"}, match.Accepted, "tls a  1.1.1.1:1"},
		{"any", []*listenerv3.ListenerFilter{{
			Name:       "tls",
			ConfigType: tls.ConfigType,
			FilterDisabled: &listenerv3.ListenerFilterChainMatchPredicate{
				Rule: &listenerv3.ListenerFilterChainMatchPredicate_AnyMatch{AnyMatch: true},
			},
		}}, nil, match.Conn{First: match.TLSHello}, match.Accepted, "raw_buffer   1.1.1.1:1"},
		{"both", []*listenerv3.ListenerFilter{{Name: "tls", ConfigType: tls.ConfigType, FilterDisabled: both(portPredicate(1),
			not(portPredicate(2)))}}, nil, match.Conn{First: match.TLSHello}, match.Accepted, "raw_buffer   1.1.1.1:1"},
		{"not both", []*listenerv3.ListenerFilter{{Name: "tls", ConfigType: tls.ConfigType,
			FilterDisabled: both(portPredicate(1), portPredicate(2))}}, nil, match.Conn{First: match.TLSHello, SNI: "a"},
			match.Accepted, "tls a  1.1.1.1:1"},
		{"no PROXY header", []*listenerv3.ListenerFilter{listenerFilter("proxy", &proxyprotocolv3.ProxyProtocol{})}, nil,
			match.Conn{First: match.PlainBytes}, match.Denied, ""},
		{"a PROXY header that may be missing", []*listenerv3.ListenerFilter{listenerFilter("proxy",
			&proxyprotocolv3.ProxyProtocol{AllowRequestsWithoutProxyProtocol: true})}, nil, match.Conn{First: match.PlainBytes},
			match.Accepted, "raw_buffer   1.1.1.1:1"},
		{"IPv4 in IPv6", nil, nil, match.Conn{Dst: netip.MustParseAddrPort("[::ffff:1.1.1.1]:1")}, match.Accepted,
			"raw_buffer   1.1.1.1:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &listenerv3.Listener{ListenerFilters: c.filters, FilterChains: []*listenerv3.FilterChain{{}}}
			if c.edit != nil {
				c.edit(l)
			}
			if !c.conn.Dst.IsValid() {
				c.conn.Dst = netip.MustParseAddrPort("1.1.1.1:1")
			}
			m := match.NewListener(l).Find(&c.conn)
			got := strings.Join([]string{m.Seen.Transport, m.Seen.ServerName, strings.Join(m.Seen.Protocols, ","),
				m.Seen.Dst.String()}, " ")
			if m.Outcome != c.outcome || c.outcome == match.Accepted && got != c.want {
				t.Errorf("%v %q, want %v %q", m.Outcome, got, c.outcome, c.want)
			}
		})
	}
}

func not(p *listenerv3.ListenerFilterChainMatchPredicate) *listenerv3.ListenerFilterChainMatchPredicate {
	return &listenerv3.ListenerFilterChainMatchPredicate{
		Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: p},
	}
}

func both(p ...*listenerv3.ListenerFilterChainMatchPredicate) *listenerv3.ListenerFilterChainMatchPredicate {
	return &listenerv3.ListenerFilterChainMatchPredicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_AndMatch{
		AndMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: p},
	}}
}

// TestProxyHeader checks that a PROXY header changes the source address and not the direct peer.
func TestProxyHeader(t *testing.T) {
	l := match.NewListener(&listenerv3.Listener{
		ListenerFilters: []*listenerv3.ListenerFilter{listenerFilter("proxy", &proxyprotocolv3.ProxyProtocol{})},
		FilterChains:    []*listenerv3.FilterChain{{}},
	})
	conn := &match.Conn{Dst: netip.MustParseAddrPort("1.1.1.1:1"), Src: netip.MustParseAddrPort("2.2.2.2:2"),
		DirectSrc: netip.MustParseAddrPort("3.3.3.3:3")}
	if m := l.Find(conn); m.Seen.Src != conn.Src || m.Seen.Direct != conn.DirectSrc {
		t.Errorf("with a header: %+v", m.Seen)
	}
	conn.DirectSrc = conn.Src
	if m := l.Find(conn); m.Outcome != match.Denied {
		t.Errorf("without one: %v", m.Outcome)
	}
	plain := match.NewListener(&listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{{}}})
	conn.DirectSrc = netip.MustParseAddrPort("3.3.3.3:3")
	if m := plain.Find(conn); m.Seen.Src != conn.DirectSrc {
		t.Errorf("without the filter the source is %v", m.Seen.Src)
	}
}

// TestAmbiguous checks that the trace has a note if it is unknown which of two prefixes of length 0
// wins.
func TestAmbiguous(t *testing.T) {
	for _, c := range []struct {
		name      string
		chains    []*listenerv3.FilterChain
		ambiguous bool
	}{
		{"both", []*listenerv3.FilterChain{chain("none", "tls"), chain("zero", "tcp 0.0.0.0/0")}, true},
		{"none", []*listenerv3.FilterChain{chain("none", "tls"), chain("ten", "tcp 10.0.0.0/8")}, false},
		{"zero", []*listenerv3.FilterChain{chain("zero", "tcp 0.0.0.0/0"), chain("ten", "tls 10.0.0.0/8")}, false},
	} {
		got := match.Open(snapshot(t, passthrough(c.chains...)), nil).Connection(through("10.0.0.1:1", match.PlainBytes, ""))
		if step := findStep(got, match.LevelDestinationIP); step == nil || (step.Note != "") != c.ambiguous {
			t.Errorf("%s: %+v", c.name, step)
		}
	}
}

// TestHandOff checks that a listener with the original destination address receives the connection,
// whether or not it is bound.
func TestHandOff(t *testing.T) {
	outbound := func(name, ip string, port uint32) *listenerv3.Listener {
		l := secondListener(name, address(ip, port))
		l.BindToPort = wrapperspb.Bool(false)
		return l
	}
	dual := outbound("dual", "::", 9999)
	dual.Address.GetSocketAddress().Ipv4Compat = true
	more := outbound("more", "10.9.9.1", 1)
	more.AdditionalAddresses = []*listenerv3.AdditionalAddress{{Address: address("10.9.9.2", 2)}}
	everything := passthrough(chain("all", "tcp"))
	s := snapshot(t, everything, outbound("exact", "240.0.0.1", 80), outbound("wildcard", "0.0.0.0", 80),
		outbound("six", "::", 81), dual, more, originalDst("all"), originalDst("static"))
	for dst, want := range map[string]string{
		"240.0.0.1:80": "exact", "240.0.0.2:80": "wildcard", "240.0.0.1:81": everything.Name, "10.0.0.1:9999": "dual",
		"10.9.9.2:2": "more", "8.8.8.8:53": everything.Name,
	} {
		got := match.Open(s, nil).Connection(through(dst, match.PlainBytes, ""))
		if got.Listener == nil || got.Listener.Resource != want || got.Outcome != match.Forwarded {
			t.Errorf("%s: %v by %+v, want %s", dst, got.Outcome, got.Listener, want)
		}
		if step := findStep(got, match.LevelOriginalDst); step == nil || step.Choice != want {
			t.Errorf("%s: the step is %+v", dst, step)
		}
	}
	direct := through("127.0.0.1:15001", match.PlainBytes, "")
	if got := match.Open(s, nil).Connection(direct); got.Listener.Resource != everything.Name ||
		findStep(got, match.LevelOriginalDst) != nil {
		t.Errorf("a connection that nothing redirects: %+v", got.Steps)
	}
	if got := match.Open(s, nil).Connection(&match.Conn{Dst: netip.MustParseAddrPort("240.0.0.1:80")}); got.Outcome !=
		match.NoListener {
		t.Errorf("a listener that is not bound takes %v", got)
	}
}

// TestHandshake checks which clients pass the TLS handshake of a filter chain.
func TestHandshake(t *testing.T) {
	mesh := func(require bool) *listenerv3.Listener {
		l := secondListener("in", address("10.0.0.1", 80))
		l.ListenerFilters = []*listenerv3.ListenerFilter{listenerFilter("tls", &tlsinspectorv3.TlsInspector{})}
		l.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "tls",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&tlsv3.DownstreamTlsContext{
				RequireClientCertificate: wrapperspb.Bool(require),
				CommonTlsContext: &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
					CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
						DefaultValidationContext: &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: uriNames()},
					},
				}},
			})}}
		return l
	}
	member := &match.Peer{URIs: []string{"spiffe://mesh/web"}}
	for _, c := range []struct {
		name    string
		require bool
		first   match.FirstBytes
		peer    *match.Peer
		want    match.Outcome
	}{
		{"a member", true, match.TLSHello, member, match.Forwarded},
		{"plain", true, match.PlainBytes, nil, match.HandshakeEnd},
		{"nobody", true, match.TLSHello, nil, match.HandshakeEnd},
		{"nobody, and nobody asks", false, match.TLSHello, nil, match.Forwarded},
		{"a stranger", true, match.TLSHello, &match.Peer{URIs: []string{"https://x"}}, match.HandshakeEnd},
		{"a DNS name", true, match.TLSHello, &match.Peer{DNS: []string{"spiffe://mesh/web"}}, match.HandshakeEnd},
	} {
		config := match.Open(snapshot(t, mesh(c.require), originalDst("static")), nil)
		got := config.Connection(&match.Conn{Dst: netip.MustParseAddrPort("10.0.0.1:80"),
			Src: netip.MustParseAddrPort("10.0.0.2:1"), First: c.first, Peer: c.peer})
		if got.Outcome != c.want {
			t.Errorf("%s: %v (%s), want %v", c.name, got.Outcome, got.Reason, c.want)
		}
	}
}

// TestLocal checks which clients are on the same host.
func TestLocal(t *testing.T) {
	local := chain("local", "tcp")
	local.FilterChainMatch.SourceType = listenerv3.FilterChainMatch_SAME_IP_OR_LOOPBACK
	external := chain("external", "tcp")
	external.FilterChainMatch.SourceType = listenerv3.FilterChainMatch_EXTERNAL
	l := match.NewListener(&listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{local, external}})
	for src, want := range map[string]string{
		"127.0.0.1:1": "local",
		"127.0.0.2:1": "external",
		"[::1]:1":     "local",
		"10.0.0.1:1":  "local",
		"10.0.0.2:1":  "external",
	} {
		m := l.Find(&match.Conn{Dst: netip.MustParseAddrPort("10.0.0.1:80"), Src: netip.MustParseAddrPort(src)})
		if m.Chain.GetName() != want {
			t.Errorf("%s: %s, want %s", src, m.Chain.GetName(), want)
		}
	}
	if m := l.Find(&match.Conn{Dst: netip.MustParseAddrPort("10.0.0.1:80"), Src: netip.MustParseAddrPort("10.0.0.2:1"),
		Local: true}); m.Chain.GetName() != "local" {
		t.Errorf("one that is known to be local: %s", m.Chain.GetName())
	}
}

// TestDefaultChain checks that the default filter chain is used if no chain matches.
func TestDefaultChain(t *testing.T) {
	l := passthrough(chain("tls", "tls a.com :443"))
	l.DefaultFilterChain = &listenerv3.FilterChain{Filters: []*listenerv3.Filter{tcpProxy("rest")}}
	got := match.Open(snapshot(t, l, originalDst("rest")), nil).Connection(through("10.0.0.1:80", match.PlainBytes, ""))
	if got.Outcome != match.Forwarded || got.Chain.Pointer != "/defaultFilterChain" || got.Targets[0].Cluster != "rest" {
		t.Errorf("%+v", got)
	}
}
