package passthrough_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/passthrough"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func numbered(n int, format string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return out
}

func octets(n int, format string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i/200, i%200+1)
	}
	return out
}

// TestClosureIsBounded checks that rules beyond the limit of the closure are dropped with a
// warning, and that chains for the rules themselves remain.
func TestClosureIsBounded(t *testing.T) {
	for _, c := range []struct {
		name           string
		docs           string
		ranges         int // chains and ranges of the closure; -1 for any
		allowed, close []conn
	}{
		{
			"names beside addresses",
			matched("a", octets(600, "http 10.0.%d.%d:443")...) + matched("b", numbered(100, "tls n%d.com:443")...), 0,
			[]conn{to("10.0.0.1:443", sendsHTTP1), to("1.1.1.1:443", sendsTLS, "n1.com")},
			[]conn{to("10.0.0.1:443", sendsTLS, "n1.com")},
		},
		{
			"names beside fewer addresses", matched("a", octets(190, "tcp 10.0.%d.%d:443")...) +
				matched("b", numbered(100, "tls n%d.com:443")...), 100 * 191, []conn{to("10.0.0.1:443", sendsBytes),
				to("1.1.1.1:443", sendsTLS, "n1.com"), to("10.0.0.1:443", sendsTLS, "n1.com")}, nil,
		},
		{
			"all ports beside ports", matched("a", octets(400, "tcp 10.0.%d.%d")...) + matched("b", func() []string {
				out := make([]string, 100)
				for i := range out {
					out[i] = fmt.Sprintf("tls a.com:%d", i+1)
				}
				return out
			}()...), -1,
			// The first ports use the budget.
			[]conn{to("10.0.0.1:1", sendsBytes), to("10.0.0.1:1000", sendsBytes), to("1.1.1.1:100", sendsTLS, "a.com")},
			[]conn{to("10.0.0.1:100", sendsBytes)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, warnings := newEnvoy(t, base+c.docs)
			reported := strings.Contains(strings.Join(warnings, "\n"), "more than 20000 filter chains and ranges")
			if cut := len(c.close) > 0; cut != reported {
				t.Errorf("limit exceeded is %t: %q", cut, warnings)
			}
			added := 0
			for _, ch := range e.listeners[false].message.FilterChains {
				if strings.HasSuffix(ch.Name, "_closure") {
					added += 1 + len(ch.FilterChainMatch.PrefixRanges)
				}
			}
			if c.ranges >= 0 && c.ranges != added {
				t.Errorf("the closure has %d chains and ranges, want %d", added, c.ranges)
			}
			for _, conn := range c.allowed {
				if v := e.decide(conn); !v.allowed() {
					t.Errorf("%s: %+v", conn, v)
				}
			}
			for _, conn := range c.close {
				if v := e.decide(conn); v.allowed() {
					t.Errorf("%s: %+v", conn, v)
				}
			}
		})
	}
}

// TestRulesAreBounded checks that policies that are merged later are dropped.
func TestRulesAreBounded(t *testing.T) {
	docs := base
	for i, n := range []int{10, 10_000, 10_000} { // alphabetically last names are merged first
		docs += matched(fmt.Sprintf("p%d", i), octets(n, fmt.Sprintf("tcp 10.%d.%%d.%%d:443", i))...)
	}
	e, warnings := newEnvoy(t, docs)
	if n := len(e.listeners[false].message.FilterChains); n != 20_000 {
		t.Errorf("%d chains", n)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "p0: appendMatch[0] ") ||
		!strings.Contains(warnings[0], "and 5 more: dropped") {
		t.Errorf("%q", warnings)
	}
}

// TestInspectedPorts checks that connections on ports without matches are not inspected, including
// those to services, which also pass the listener.
func TestInspectedPorts(t *testing.T) {
	for _, c := range []struct {
		name, docs string
		waits      []uint16
		not        []uint16
		continues  bool // after the timeout
	}{
		{"nothing plain", base + matched("p", "tls a.com:443"), []uint16{80, 443, 3306}, nil, false},
		{"plain matches alone", base + database + matched("p", "tcp 10.0.0.1:443", "tcp 10.0.0.0/8", "tcp 10.0.0.1:80"), nil,
			[]uint16{22, 80, 443, 3306}, false},
		{"a plain match on another port", base + matched("p", "tls a.com:443", "tcp 10.0.0.1:22", "http a.com:80"),
			[]uint16{80, 443}, []uint16{22, 25}, false},
		{"on the same port", base + matched("p", "tls a.com:443", "tcp 10.0.0.1:443"), []uint16{443}, []uint16{22, 80}, true},
		{"on all ports", base + matched("p", "tls a.com:443", "tcp 10.0.0.1"), []uint16{443}, []uint16{22, 80}, true},
		{"TLS on all ports", base + matched("p", "tls a.com", "tcp 10.0.0.1:22"), []uint16{22, 80, 443}, nil, true},
		{"a plain service", base + database + matched("p", "tls a.com:443"), []uint16{443}, []uint16{80, 3306}, false},
		{"on a port of TLS", base + database + matched("p", "tls a.com:80"), []uint16{80}, []uint16{443, 3306}, true},
		{"a server that speaks first", base + database + matched("p", "mysql 10.0.0.1:25", "tls a.com:443"), []uint16{443},
			[]uint16{22, 25, 80}, false},
		{"many ports", base + database + matched("p", numbered(65, "tls a.com:1%d2")...), []uint16{112},
			[]uint16{80, 443}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := newEnvoy(t, c.docs)
			l := e.listeners[false]
			inspected := func(port uint16) bool {
				transport, _, _ := l.inspect(to(fmt.Sprintf("10.9.9.9:%d", port), sendsTLS, "a.com"))
				return transport == "tls"
			}
			for _, p := range c.waits {
				if !inspected(p) {
					t.Errorf("port %d is not inspected", p)
				}
			}
			for _, p := range c.not {
				if inspected(p) {
					t.Errorf("port %d is inspected", p)
				}
			}
			if got := l.message.ContinueOnListenerFiltersTimeout; got != c.continues {
				t.Errorf("connections continue after the timeout: %t, want %t", got, c.continues)
			}
			if l.message.ListenerFiltersTimeout != nil {
				t.Errorf("the inspectors time out after %v; want Envoy's default", l.message.ListenerFiltersTimeout.AsDuration())
			}
		})
	}
}

// TestSameBytes checks that the order of documents and matches does not affect the config.
func TestSameBytes(t *testing.T) {
	docs := []string{
		matched("a", "tls a.com:443", "tcp 10.0.0.1:443", "http b.com:80", "http *.b.com:80", "tcp 10.0.0.0/8"),
		matched("b", "tls *.a.com:443", "tls 10.0.0.0/16:443", "tcp 10.0.0.2:80", "http c.com"),
		matched("c", "tls b.com:443", "tcp 10.0.0.0/24:443", "tcp [2001:db8::1]:1"),
	}
	sealed := func(docs []string) []byte {
		p := kindtest.Generator(t, []byte(base+strings.Join(docs, "")), "d")()
		var out []byte
		for _, rank := range []int{draft.Rank(draft.TypeListener), draft.Rank(draft.TypeCluster)} {
			for _, r := range p.Sealed.Resources[rank] {
				out = append(out, r.Body()...)
			}
		}
		return out
	}
	first := sealed(docs)
	for range 20 {
		docs = append(docs[1:], docs[0])
		if !bytes.Equal(sealed(docs), first) {
			t.Fatal("the same policies result in different bytes")
		}
	}
}

type host struct{ warnings []string }

func (*host) Destination(*resource.Resource, policy.BackendRef) (policy.Destination, bool) {
	return policy.Destination{}, false
}

func (*host) Lookup(*resource.Resource, policy.BackendRef) (draft.Service, bool) {
	return draft.Service{}, false
}
func (*host) Claim(string, string) bool             { return true }
func (*host) Localities(string, *policy.Localities) {}
func (*host) EnvoyFrom(uint32, uint32) bool         { return false }

func (*host) Egress(*draft.Cluster, string) {}
func (h *host) Warn(k resource.Key, format string, args ...any) {
	h.warnings = append(h.warnings, k.Name+": "+fmt.Sprintf(format, args...))
}

// contextOf returns the context of the dataplane "d".
func contextOf(t testing.TB, docs string) *policy.Context {
	t.Helper()
	rs, faults := kinds.Registry().Decode("", []byte(docs))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	set := resource.NewSet(rs)
	v, err := mesh.Build(set, "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := v.Dataplane("d")
	rules := policy.NewIndex(kinds.Plugins(), set, v, policy.Options{}).Rules(r)
	return (&policy.Context{View: v, Rules: rules, Host: &host{}, Last: true}).WithDataplane(r,
		r.Spec.(*resource.Dataplane))
}

func TestInForce(t *testing.T) {
	open := strings.Replace(base, "passthrough: false", "passthrough: true", 1)
	in := func(name, field string) policy.FieldRef {
		return policy.FieldRef{Resource: resource.Key{Kind: "MeshPassthrough", Mesh: "default", Name: name},
			Field: "spec.default" + field}
	}
	state := func(mode string, by policy.FieldRef, permits ...policy.Permit) *policy.InForce {
		return &policy.InForce{Kind: "MeshPassthrough", Mode: mode, Decides: by, Permits: permits}
	}
	mesh := policy.FieldRef{Resource: resource.Key{Kind: "Mesh", Name: "default"},
		Field: "networking.outbound.passthrough"}
	for name, c := range map[string]struct {
		docs string
		want *policy.InForce
	}{
		"the mesh is closed": {base, state(passthrough.ModeNone, mesh)},
		"the mesh is open":   {open, state(passthrough.ModeAll, mesh)},
		"the mesh decides":   {open + policyOf("a", `{"enabled":false}`), state(passthrough.ModeAll, mesh)},
		"no transparent proxy": {
			strings.Replace(base, ", transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}", "", 1) +
				matched("a", "tls a.com:443"), nil,
		},
		"a mode": {base + policyOf("b", `{"passthroughMode":"None"}`) + policyOf("a", `{"passthroughMode":"All"}`),
			state(passthrough.ModeAll, in("a", ".passthroughMode"))},
		"a mode of a weaker one": {base + policyOf("b", `{"passthroughMode":"None"}`) + policyOf("a", `{"appendMatch":[]}`),
			state(passthrough.ModeNone, in("b", ".passthroughMode"))},
		"the stronger decides, in either form": {
			open + policyOf("b", `{"passthroughMode":"None"}`) + policyOf("a", `{"enabled":true}`),
			state(passthrough.ModeAll, in("a", ".enabled")),
		},
		"matches": {
			base + matched("b", "tls a.com:443", "tls *.a.com", "tcp 10.0.0.1:80") +
				matched("a", "tls A.com:443", "tls b.com", "tcp 10.0.0.1/32:80"),
			state(passthrough.ModeMatched, in("a", ".passthroughMode"),
				policy.Permit{Protocol: "tcp", Value: "10.0.0.1", Port: 80, Cluster: "meshpassthrough_tcp_10.0.0.1_80", IPv4: true,
					Reaches: "the address 10.0.0.1",
					Sources: []policy.FieldRef{in("b", ".appendMatch[2]"), in("a", ".appendMatch[2]")}},
				policy.Permit{Protocol: "tls", Value: "*.a.com", Cluster: "meshpassthrough_tls_*.a.com_*", IPv4: true, IPv6: true,
					Reaches: "any address, with a matching name: the proxy resolves wildcards only if nearside.io/dns-pinned is true",
					Sources: []policy.FieldRef{in("b", ".appendMatch[1]")}},
				policy.Permit{Protocol: "tls", Value: "a.com", Port: 443, Cluster: "meshpassthrough_tls_a.com_443", Pinned: true,
					IPv4: true, IPv6: true, Reaches: "the addresses of a.com, resolved by the proxy",
					Sources: []policy.FieldRef{in("b", ".appendMatch[0]"), in("a", ".appendMatch[0]")}},
				policy.Permit{Protocol: "tls", Value: "b.com", Cluster: "meshpassthrough_tls_b.com_*", IPv4: true, IPv6: true,
					Reaches: "any address, with that name: the proxy resolves only domains with a port",
					Sources: []policy.FieldRef{in("a", ".appendMatch[1]")}}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, passthrough.Plugin().InForce(contextOf(t, c.docs))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestOneMerge checks that the effective mode equals that of the merged rule.
func TestOneMerge(t *testing.T) {
	confs := []string{`{}`, `{"passthroughMode":"All"}`, `{"passthroughMode":"None"}`, `{"passthroughMode":"Matched"}`,
		`{"enabled":true}`, `{"enabled":false}`, `{"enabled":false,"passthroughMode":"None"}`,
		`{"enabled":true,"passthroughMode":"All"}`}
	inForce := passthrough.Plugin().InForce
	for _, mesh := range []string{base, strings.Replace(base, "passthrough: false", "passthrough: true", 1)} {
		for _, weaker := range confs {
			for _, stronger := range confs {
				c := contextOf(t, mesh+policyOf("b", weaker)+policyOf("a", stronger))
				merged, err := json.Marshal(c.Rules.Kind("MeshPassthrough").Proxy.Conf)
				if err != nil {
					t.Fatal(err)
				}
				got, want := inForce(c).Mode, inForce(contextOf(t, mesh+policyOf("one", string(merged)))).Mode
				if got != want {
					t.Errorf("%s and %s: effective mode %s, and the merged rule %s has mode %s",
						weaker, stronger, got, merged, want)
				}
			}
		}
	}
}

// mixed returns n matches of all kinds.
func mixed(n int) []string {
	forms := []string{"tls n%d.example.com:443", "tls *.w%d.example.com:443", "tcp 10.1.%d.0/24:9000",
		"http h%d.example.com:80", "tls 10.2.%d.1:443", "tcp 10.3.%d.1:22", "http 10.4.%d.1:8080", "tcp 10.5.%d.1:5432"}
	out := make([]string, 0, n)
	for i := 0; len(out) < n-2; i++ {
		out = append(out, fmt.Sprintf(forms[i%len(forms)], i%250))
	}
	return append(out, "tcp 10.6.0.0/16", "tls any.example.com")
}

func closed(name string) *draft.Cluster {
	return &draft.Cluster{Kind: draft.PassthroughCluster, Message: &clusterv3.Cluster{Name: name}}
}

// BenchmarkPlugin measures the plugin for one proxy, without sealing.
func BenchmarkPlugin(b *testing.B) {
	c := contextOf(b, base+matched("p", mixed(200)...))
	b.ReportAllocs()
	for b.Loop() {
		d := &draft.Draft{}
		for _, name := range []string{"outbound:passthrough:ipv4", "outbound:passthrough:ipv6"} {
			d.Listeners = append(d.Listeners,
				&draft.Listener{Kind: draft.OutboundPassthrough, Message: &listenerv3.Listener{Name: name}})
			d.Clusters = append(d.Clusters, closed(name))
		}
		passthrough.Plugin().Apply(c, d)
		if len(d.Clusters) != 200 {
			b.Fatal(len(d.Clusters))
		}
	}
}

// manyMatches returns 200 matches of all kinds. Half of them have a closure over the other half.
func manyMatches() map[string][]string {
	return map[string][]string{
		"mixed":   mixed(200),
		"closure": append(octets(100, "tcp 10.0.%d.%d:443"), numbered(100, "tls n%d.example.com:443")...),
	}
}

// BenchmarkGenerate generates the whole config of a proxy with 200 matches.
func BenchmarkGenerate(b *testing.B) {
	for name, matches := range manyMatches() {
		b.Run(name, func(b *testing.B) {
			generate := kindtest.Generator(b, []byte(base+matched("p", matches...)), "d")
			b.ReportAllocs()
			for b.Loop() {
				generate()
			}
		})
	}
}

// BenchmarkCheck checks this config with an empty cache.
func BenchmarkCheck(b *testing.B) {
	for name, matches := range manyMatches() {
		b.Run(name, func(b *testing.B) {
			p := kindtest.Generator(b, []byte(base+matched("p", matches...)), "d")()
			b.ReportAllocs()
			for b.Loop() {
				for _, f := range p.Check(&check.Checker{}, nil) {
					if f.Severity.Blocks() {
						b.Fatal(f)
					}
				}
			}
		})
	}
}
