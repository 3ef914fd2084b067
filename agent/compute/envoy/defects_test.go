package envoy_test

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// TestKnownDefects checks passthrough listeners that other control planes are known to generate.
// Envoy rejects some of them, and the finding names both conflicting chains. Others load but do not
// behave as intended.
func TestKnownDefects(t *testing.T) {
	v6 := func(name, spelling string) *listenerv3.FilterChain {
		c := chain(name, "tcp 2001:db8::1 :80")
		c.FilterChainMatch.PrefixRanges[0].AddressPrefix = spelling
		return c
	}
	for _, c := range []struct {
		name     string
		chains   []*listenerv3.FilterChain
		rule     int
		severity finding.Severity
		pointer  string
		other    string
	}{
		{"N1 gRPC for any port beside HTTP on 80",
			[]*listenerv3.FilterChain{chain("grpc_80", "http :80"), chain("http_80", "http :80")}, 3, finding.Reject,
			"/filterChains/1/filterChainMatch", "/filterChains/0/filterChainMatch"},
		{"N2 an IP and a CIDR of 32 bits",
			[]*listenerv3.FilterChain{chain("ip", "tcp 10.0.0.1 :80"), chain("cidr", "tcp 10.0.0.1/32 :80")}, 3, finding.Reject,
			"/filterChains/1/filterChainMatch", "/filterChains/0/filterChainMatch"},
		{"N3 CIDRs of one network",
			[]*listenerv3.FilterChain{chain("one", "tcp 192.168.0.1/24 :80"), chain("two", "tcp 192.168.0.2/24 :80")}, 4,
			finding.Reject, "/filterChains/1/filterChainMatch", "/filterChains/0/filterChainMatch"},
		{"N4 a domain in two cases",
			[]*listenerv3.FilterChain{chain("one", "tls Example.com :443"), chain("two", "tls example.com :443")}, 4,
			finding.Reject, "/filterChains/1/filterChainMatch", "/filterChains/0/filterChainMatch"},
		{"N5 tcp and mysql for one address",
			[]*listenerv3.FilterChain{chain("tcp", "tcp 10.0.0.1 :3306"), chain("tcp", "tcp 10.0.0.1 :3306")}, 3,
			finding.Reject, "/filterChains/1/filterChainMatch", "/filterChains/0/filterChainMatch"},
		{"N6 an address in two spellings", []*listenerv3.FilterChain{v6("one", "2001:db8::1"), v6("two", "2001:db8:0:0::1")},
			4, finding.Reject, "/filterChains/1/filterChainMatch", "/filterChains/0/filterChainMatch"},
		{"N10 a range of no bits beside none", []*listenerv3.FilterChain{chain("all", "tcp 0.0.0.0/0 :80"),
			chain("any", "tls :80")}, 201, finding.Warning, "/filterChains/0/filterChainMatch/prefixRanges", "/filterChains/1"},
		{"V1 an address hides a domain", []*listenerv3.FilterChain{chain("domain", "tls a.com :443"),
			chain("ip", "tcp 10.0.0.1 :443")}, 202, finding.Warning, "/filterChains/0/filterChainMatch", "/filterChains/1"},
		{"V3 a range hides the hosts of requests",
			[]*listenerv3.FilterChain{chain("hosts", "http :80"), chain("cidr", "tls 142.250.0.0/15 :80")}, 202,
			finding.Warning, "/filterChains/0/filterChainMatch", "/filterChains/1"},
		{"V4 a range for TLS hides a wider one for TCP", []*listenerv3.FilterChain{chain("wide", "tcp 10.0.0.0/8"),
			chain("narrow", "tls 10.1.0.0/16")}, 202, finding.Warning, "/filterChains/0/filterChainMatch", "/filterChains/1"},
		{"a port hides what is for any", []*listenerv3.FilterChain{chain("any", "tcp 10.0.0.1"),
			chain("one", "tls a.com :443")}, 202, finding.Warning, "/filterChains/0/filterChainMatch", "/filterChains/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := passthrough(c.chains...)
			messages := []proto.Message{l}
			for _, ch := range c.chains[:1] {
				messages = append(messages, originalDst(ch.Name))
			}
			if c.chains[1].Name != c.chains[0].Name {
				messages = append(messages, originalDst(c.chains[1].Name))
			}
			found := check.Check(nil, snapshot(t, messages...), nil)
			if len(found) != 1 {
				t.Fatalf("%d findings, want one: %+v", len(found), found)
			}
			f := found[0]
			if f.Rule != c.rule || f.Severity != c.severity || f.Pointer != c.pointer || len(f.Others) != 1 ||
				f.Others[0].Pointer != c.other {
				t.Errorf("%+v, want rule %d %v at %s and %s", f, c.rule, c.severity, c.pointer, c.other)
			}
		})
	}
}

// TestServerFirstCostsItsPort checks the warning of rule 27: if the inspectors are disabled for a
// MySQL port, a TLS chain on that port never matches.
func TestServerFirstCostsItsPort(t *testing.T) {
	l := passthrough(chain("mysql", "tcp 10.0.0.1 :3306"), chain("tls", "tls a.com 10.0.0.2 :3306"))
	l.ListenerFilters = []*listenerv3.ListenerFilter{
		listenerFilter("dst", &originaldstv3.OriginalDst{}),
		listenerFilter("tls", &tlsinspectorv3.TlsInspector{}, 3306),
		listenerFilter("http", &httpinspectorv3.HttpInspector{}, 3306),
	}
	s := snapshot(t, l, originalDst("mysql"), originalDst("tls"))
	found := check.Check(nil, s, nil)
	if len(found) != 1 || found[0].Rule != 27 || found[0].Severity != finding.Warning ||
		found[0].Pointer != "/filterChains/1/filterChainMatch/serverNames" {
		t.Errorf("%+v", found)
	}
	config := match.Open(s, nil)
	if got := config.Connection(through("10.0.0.1:3306", match.ServerFirst, "")); got.Outcome != match.Forwarded {
		t.Errorf("MySQL: %v (%s)", got.Outcome, got.Reason)
	}
	got := config.Connection(through("10.0.0.2:3306", match.TLSHello, "a.com"))
	if got.Outcome != match.NoChain || got.At != match.LevelServerName {
		t.Errorf("TLS beside it: %v at %v", got.Outcome, got.At)
	}
	if step := findStep(got, match.LevelInspection); step == nil ||
		step.Note != "dst restores 10.0.0.2:3306; tls is off for port 3306; http is off for port 3306" {
		t.Errorf("the inspection is told as %+v", step)
	}
}

// TestServerFirstCostsAllPorts checks that a TLS chain for all ports does not match on a MySQL
// port, and that the warning names this port.
func TestServerFirstCostsAllPorts(t *testing.T) {
	l := passthrough(chain("mysql", "tcp 10.0.0.1 :3306"), chain("tls", "tls 10.0.0.2"),
		chain("domain", "tls a.com :3306"))
	l.ListenerFilters = []*listenerv3.ListenerFilter{
		listenerFilter("dst", &originaldstv3.OriginalDst{}),
		listenerFilter("tls", &tlsinspectorv3.TlsInspector{}, 3306),
		listenerFilter("http", &httpinspectorv3.HttpInspector{}, 3306),
	}
	found := check.Check(nil, snapshot(t, l, originalDst("mysql"), originalDst("tls"), originalDst("domain")), nil)
	want := map[string]string{
		"/filterChains/1/filterChainMatch/transportProtocol": `no connection to port 3306 matches filter chain "tls": transport protocol tls needs the tls_inspector, which is off for port 3306`,
		"/filterChains/2/filterChainMatch/serverNames":       `no connection matches filter chain "domain": server names need the tls_inspector, which is off for port 3306`,
	}
	for _, f := range found {
		if f.Rule != 27 || f.Severity != finding.Warning || want[f.Pointer] != f.Message {
			t.Errorf("%+v", f)
		}
		delete(want, f.Pointer)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
}
