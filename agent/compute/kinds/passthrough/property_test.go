package passthrough_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// testMatch is a match in a straightforward interpretation.
type testMatch struct {
	protocol, value string
	port            uint16 // 0 for all
}

func (a testMatch) text() string {
	s := a.protocol + " " + a.value
	if a.port == 0 {
		return s
	}
	if addr, err := netip.ParseAddr(a.value); err == nil && addr.Is6() {
		s = a.protocol + " [" + a.value + "]"
	}
	return fmt.Sprintf("%s:%d", s, a.port)
}

// address returns the addresses of a match, or false for a domain.
func (a testMatch) address() (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(a.value)
	if err != nil {
		addr, err := netip.ParseAddr(a.value)
		if err != nil {
			return p, false
		}
		p = netip.PrefixFrom(addr, addr.BitLen())
	}
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, true
}

func (a testMatch) requests() bool {
	return a.protocol != "tls" && a.protocol != "tcp" && a.protocol != "mysql"
}

// admits evaluates one match regardless of others. silent is true on ports without inspection.
func (a testMatch) admits(c conn, silent bool) bool {
	if a.port != 0 && a.port != c.to.Port() {
		return false
	}
	prefix, byAddress := a.address()
	if byAddress && !prefix.Contains(c.to.Addr()) {
		return false
	}
	if silent {
		return a.protocol == "tcp" || a.protocol == "mysql"
	}
	switch {
	case a.protocol == "tls":
		return c.sends == sendsTLS && (byAddress || names(a.value, c.name))
	case a.protocol == "tcp":
		return true
	}
	host := strings.TrimSuffix(c.name, fmt.Sprintf(":%d", c.to.Port()))
	return c.isRequest() && (byAddress || names(a.value, host))
}

func (c conn) isRequest() bool {
	return c.sends == sendsHTTP10 || c.sends == sendsHTTP1 || c.sends == sendsHTTP2
}

// names reports whether a name belongs to a domain.
func names(domain, name string) bool {
	domain, name = strings.ToLower(domain), strings.ToLower(name)
	if below, ok := strings.CutPrefix(domain, "*"); ok {
		return below == "" || strings.HasSuffix(name, below) && len(name) > len(below)
	}
	return name == domain
}

var (
	addresses = []string{
		"10.0.0.1", "10.0.0.1/32", "10.0.0.2", "10.0.0.0/30", "10.0.0.3/24", "10.0.0.0/8", "0.0.0.0/0", "::ffff:10.0.0.2",
		"::ffff:10.0.0.0/126", "2001:db8::1", "2001:DB8:0::1", "2001:db8::/64", "2001:db8::/32", "::/0",
	}
	domains = []string{"a.com", "A.com", "b.a.com", "*.a.com", "*.b.a.com", "c.org", "*"}
	ports   = []uint16{0, 80, 443, 3306}
)

// connections returns all connections that matches can distinguish, and others.
func connections() []conn {
	var out []conn
	for _, a := range []string{
		"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.77", "10.9.0.1", "1.1.1.1", "2001:db8::1", "2001:db8::2",
		"2001:db8:1::1", "fd00::1",
	} {
		for _, port := range []uint16{80, 443, 3306, 8080} {
			to := netip.AddrPortFrom(netip.MustParseAddr(a), port)
			for _, name := range []string{"", "a.com", "x.a.com", "b.a.com", "x.b.a.com", "c.org", "d.org"} {
				out = append(out, conn{to: to, sends: sendsTLS, name: name})
				if name != "" {
					out = append(out, conn{to: to, sends: sendsHTTP1, name: name},
						conn{to: to, sends: sendsHTTP2, name: fmt.Sprintf("%s:%d", strings.ToUpper(name), port)},
						conn{to: to, sends: sendsHTTP10, name: name})
				}
			}
			out = append(out, conn{to: to, sends: sendsBytes}, conn{to: to, sends: sendsNothing})
		}
	}
	return out
}

// drawMatch draws a valid match with one of protocols.
func drawMatch(t *rapid.T, protocols []string) testMatch {
	a := testMatch{protocol: rapid.SampledFrom(protocols).Draw(t, "protocol"),
		port: rapid.SampledFrom(ports).Draw(t, "port")}
	if a.protocol == "tcp" || a.protocol == "mysql" || rapid.Bool().Draw(t, "by address") {
		a.value = rapid.SampledFrom(addresses).Draw(t, "address")
	} else {
		a.value = rapid.SampledFrom(domains).Draw(t, "domain")
	}
	if a.port == 0 && (a.protocol == "mysql" || a.requests() && strings.HasPrefix(a.value, "*")) {
		a.port = 80
	}
	return a
}

// drawPolicies draws matches, each in a separate policy so that no policy contradicts itself. It
// also returns the documents.
func drawPolicies(t *rapid.T, protocols []string) ([]testMatch, string) {
	list := make([]testMatch, rapid.IntRange(1, 12).Draw(t, "matches"))
	docs := base
	for i := range list {
		list[i] = drawMatch(t, protocols)
		docs += matched(fmt.Sprintf("p%02d", i), list[i].text())
	}
	return list, docs
}

// silentFor reports whether the port of a connection is not inspected: either a match disables
// inspection, or no match requires it.
func silentFor(list []testMatch, c conn) bool {
	needs := false
	for _, a := range list {
		p, byAddress := a.address()
		if a.port != 0 && a.port != c.to.Port() || byAddress && p.Addr().Is6() != c.to.Addr().Is6() {
			continue
		}
		if a.protocol == "mysql" {
			return true
		}
		needs = needs || a.protocol != "tcp"
	}
	return !needs
}

// admitted reports whether some match admits a connection.
func admitted(list []testMatch, c conn) bool {
	return slices.ContainsFunc(list, func(a testMatch) bool { return a.admits(c, silentFor(list, c)) })
}

// TestSomeMatchAdmits checks that a connection is permitted if and only if some match admits it.
func TestSomeMatchAdmits(t *testing.T) {
	all := connections()
	rapid.Check(t, func(rt *rapid.T) {
		list, docs := drawPolicies(rt, []string{"tls", "tls", "tcp", "tcp", "http", "http2", "grpc", "mysql"})
		e, warnings := newEnvoy(t, docs)
		for _, f := range e.real.found {
			if f.Rule != 27 || !strings.Contains(strings.Join(warnings, "\n"), "shadowed") {
				rt.Fatalf("%v\nthe check finds %v without a warning: %q", list, f, warnings)
			}
		}
		some := rapid.IntRange(0, 39).Draw(rt, "testMatch of the engine too")
		for i, c := range all {
			v := e.decide(c)
			if i%40 == some {
				e.agree(rt, c)
			}
			if want := admitted(list, c); v.allowed() != want {
				rt.Fatalf("%v\n%s: %+v, want admitted %t", list, c, v, want)
			}
			if v.allowed() && !reaches(list, c, v.cluster) {
				rt.Fatalf("%v\n%s leads to %s, whose match does not admit it", list, c, v.cluster)
			}
			if !c.isRequest() {
				continue
			}
			missed := c
			missed.missed = true
			m := e.decide(missed)
			if m.allowed() != v.allowed() || m.allowed() && !reaches(list, c, m.cluster) {
				rt.Fatalf("%v\n%s: %+v, and %+v if the HTTP inspector does not recognize it", list, c, v, m)
			}
		}
	})
}

// reaches reports whether a cluster belongs to a match that admits a connection.
func reaches(list []testMatch, c conn, cluster string) bool {
	silent := strings.Contains(cluster, "_tcp_") // what it admits there is said by admitted
	return slices.ContainsFunc(list, func(a testMatch) bool {
		protocol, port := a.protocol, fmt.Sprint(a.port)
		if protocol == "mysql" {
			protocol = "tcp"
		}
		if a.port == 0 {
			port = "*"
		}
		value := a.value
		if _, ok := a.address(); !ok {
			value = strings.ToLower(value)
		}
		return cluster == "meshpassthrough_"+protocol+"_"+value+"_"+port && a.admits(c, silent)
	})
}

// TestStrongerProtocolWins checks that of two policies that name different protocols for requests
// to the same destination, the one whose name comes first decides, and that both get a warning.
// Other destinations on the port keep their protocols.
func TestStrongerProtocolWins(t *testing.T) {
	protocols := []string{"http", "http2", "grpc"}
	for _, c := range []struct{ value, other string }{
		{"www.a.com:80", "b.com:80"}, {"*.a.com:80", "b.com:80"}, {"10.0.0.1:80", "10.0.0.2:80"},
		{"10.0.0.0/8", "11.0.0.0/8"},
	} {
		for i, strong := range protocols {
			weak := protocols[(i+1)%3]
			e, warnings := newEnvoy(t,
				base+matched("a", strong+" "+c.value)+matched("z", weak+" "+c.value, weak+" "+c.other))
			name := func(protocol, value string) string {
				host, port, ok := strings.Cut(value, ":")
				if !ok {
					port = "*"
				}
				return "meshpassthrough_" + protocol + "_" + host + "_" + port
			}
			for cluster, want := range map[string]bool{
				name(strong, c.value): true, name(weak, c.value): false, name(weak, c.other): true,
			} {
				if got := e.clusters[cluster] != nil; got != want {
					t.Errorf("%s before %s for %s: cluster %s exists: %t", strong, weak, c.value, cluster, got)
				}
			}
			all := strings.Join(warnings, "\n")
			if !strings.Contains(all, "dropped because of MeshPassthrough/default/a") ||
				!strings.Contains(all, "overrides MeshPassthrough/default/z") {
				t.Errorf("%s before %s for %s: warnings: %q", strong, weak, c.value, warnings)
			}
		}
	}
}

// TestOrderDoesNotMatter checks that validation does not depend on the order of matches.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(rt, "matches")
		texts := make([]string, n)
		for i := range texts {
			texts[i] = drawMatch(rt, []string{"tls", "tcp", "http", "http2", "grpc", "mysql"}).text()
		}
		other := rapid.Permutation(texts).Draw(rt, "other order")
		if a, b := len(faultsOf(matched("p", texts...))) > 0, len(faultsOf(matched("p", other...))) > 0; a != b {
			rt.Fatalf("%q is rejected: %t, %q: %t", texts, a, other, b)
		}
	})
}
