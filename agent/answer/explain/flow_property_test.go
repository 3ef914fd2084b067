package explain_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
)

// rule is an entry of a MeshPassthrough.
type rule struct {
	protocol, kind, value string
	port                  uint16
}

func (r rule) String() string { return fmt.Sprintf("%s %s %s %d", r.protocol, r.kind, r.value, r.port) }

// attempt is a connection: TLS with a server name, a request with a host, or plain bytes.
type attempt struct {
	to      netip.AddrPort
	tls     bool
	request bool
	name    string
}

func (a attempt) String() string {
	switch {
	case a.request:
		return fmt.Sprintf("request %s host=%s", a.to, a.name)
	case a.tls:
		return fmt.Sprintf("connection %s sni=%s", a.to, a.name)
	}
	return fmt.Sprintf("connection %s", a.to)
}

// admits reports whether an entry permits an attempt according to its documentation: tls permits
// TLS, tcp permits everything, and http permits requests.
func (r rule) admits(a attempt) bool {
	if r.port != 0 && r.port != a.to.Port() {
		return false
	}
	switch r.protocol {
	case "tls":
		if !a.tls {
			return false
		}
	case "http":
		if !a.request {
			return false
		}
	}
	switch r.kind {
	case "IP":
		return netip.MustParseAddr(r.value) == a.to.Addr()
	case "CIDR":
		return netip.MustParsePrefix(r.value).Contains(a.to.Addr())
	}
	if suffix, ok := strings.CutPrefix(r.value, "*"); ok {
		return strings.HasSuffix(a.name, suffix) && a.name != suffix
	}
	return r.value == a.name
}

// TestAllowedByEntries generates random entries and connections. A connection must be allowed
// exactly if an entry permits it, independent of the other entries, and the reported entry must be
// one that permits it.
func TestAllowedByEntries(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	ports := []uint16{0, 80, 443, 8080}
	addresses := []string{"10.0.0.1", "10.0.0.2", "10.1.0.1", "10.1.2.3", "192.0.2.77", "2001:db8::1", "2001:db8:1::1"}
	names := []string{"a.com", "b.a.com", "c.b.a.com", "d.org"}
	some := func() rule {
		r := rule{protocol: pick("tls", "tls", "tcp", "http"), kind: pick("Domain", "IP", "CIDR"),
			port: ports[random.IntN(len(ports))]}
		if r.protocol == "tcp" && r.kind == "Domain" {
			r.kind = "CIDR"
		}
		switch r.kind {
		case "Domain":
			r.value = pick("a.com", "b.a.com", "*.a.com", "*.b.a.com", "d.org")
		case "IP":
			r.value = pick(addresses...)
		case "CIDR":
			r.value = pick("10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/31", "10.0.0.1/32", "0.0.0.0/0", "2001:db8::/32", "::/0")
		}
		return r
	}
	registry := kinds.Registry()
	sets, yes := 0, 0
	for sets < 60 {
		var rules []rule
		var entries []string
		for range 2 + random.IntN(8) {
			r := some()
			rules, entries = append(rules, r), append(entries, r.String())
		}
		docs := redirected(entries...)
		if _, faults := registry.Decode("", []byte(docs)); len(faults) > 0 {
			continue // contradicting entries are refused
		}
		sets++
		traffic := explain.NewTraffic(meshOf(t, docs))
		for range 12 {
			a := attempt{to: netip.AddrPortFrom(netip.MustParseAddr(pick(addresses...)), ports[1+random.IntN(len(ports)-1)]),
				name: pick(names...)}
			switch random.IntN(3) {
			case 0:
				a.tls = true
			case 1:
				a.request = true
			}
			want := map[string]bool{}
			for i, r := range rules {
				if r.admits(a) {
					want[fmt.Sprintf("spec.default.appendMatch[%d]", i)] = true
				}
			}
			flow, err := question(t, a.String()).ask(traffic)
			if err != nil {
				t.Fatal(err)
			}
			if got := flow.Verdict == "allowed"; got != (len(want) > 0) {
				t.Fatalf("%s: %s: %s; admitted by %v of\n%s", a, flow.Verdict, flow.Reason, want, strings.Join(entries, "\n"))
			}
			if len(want) > 0 {
				yes++
			}
			for _, p := range flow.Policies {
				if p.Type == "MeshPassthrough" && len(want) > 0 && !want[p.Field] {
					t.Fatalf("%s: %s is reported, but admitted by %v of\n%s", a, p.Field, want, strings.Join(entries, "\n"))
				}
			}
		}
	}
	if yes < 120 || yes > 600 {
		t.Errorf("%d of %d connections are allowed: the random input is not representative", yes, 12*sets)
	}
}
