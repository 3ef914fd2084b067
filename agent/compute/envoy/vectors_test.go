package envoy_test

import (
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/match"
)

// policies maps the names of the policies in TestVectors to their filter chains, without the
// closure over prefixes.
var policies = map[string][]*listenerv3.FilterChain{
	"A": {chain("tls_api", "tls api.example.com :443"), chain("tcp_ip", "tcp 10.0.0.1 :443")},
	"B": {chain("tls_*", "tls *.example.com :443"), chain("tls_api", "tls api.example.com :443"),
		chain("tls_eu", "tls *.eu.example.com :443")},
	"C": {chain("http_80", "http :80", host("www", "www", "www.google.com", "www.google.com:80"),
		host("no_match", "none", "*")), chain("http_cidr", "http 142.250.0.0/15 :80")},
	"D": {chain("tcp_any", "tcp 10.0.0.1"), chain("tcp_443", "tcp 10.0.0.1 :443"), chain("tls_a", "tls a.com :443")},
	"E": {chain("tcp_8", "tcp 10.0.0.0/8"), chain("tls_16", "tls 10.1.0.0/16")},
	"F": {chain("http_80", "http :80", host("wild", "wild", "*.example.com", "*.example.com:80"),
		host("api", "api", "api.example.com", "api.example.com:80"),
		host("any", "any.com", "any.com", "any.com:80"), host("no_match", "none", "*")),
		chain("http_any", "http", host("any", "any.com", "any.com", "any.com:*"), host("no_match", "none", "*"))},
	"v6": {chain("tls_ip", "tls b6e5:a45e:70ae:e77f:d24e:5023:375d:20a6 :443")},
	// With the closure over prefixes, the chains of a covering prefix are repeated for each covered
	// prefix.
	"A closed": {chain("tls_api", "tls api.example.com :443"), chain("tcp_ip", "tcp 10.0.0.1 :443"),
		chain("tls_api_ip", "tls api.example.com 10.0.0.1 :443")},
	"E closed": {chain("tcp_8", "tcp 10.0.0.0/8"), chain("tls_16", "tls 10.1.0.0/16"), chain("tcp_16", "tcp 10.1.0.0/16")},
}

// TestVectors checks connections whose expected result is known: from a port of Envoy's search,
// from the simulator of another mesh, or from the rules.
func TestVectors(t *testing.T) {
	for _, c := range []struct {
		name, policy, dst string
		first             match.FirstBytes
		sni, host         string
		chain             string // or "close at LEVEL"
		cluster           string // "" if it has the chain's name
	}{
		{"1", "A", "10.0.0.9:443", match.TLSHello, "api.example.com", "", "tls_api", ""},
		{"2", "A", "10.0.0.1:443", match.TLSHello, "api.example.com", "", "close at transport_protocol", ""},
		{"2 closed", "A closed", "10.0.0.1:443", match.TLSHello, "api.example.com", "", "tls_api_ip", ""},
		{"3", "A", "10.0.0.1:443", match.PlainBytes, "", "", "tcp_ip", ""},
		{"3 closed", "A closed", "10.0.0.1:443", match.PlainBytes, "", "", "tcp_ip", ""},
		{"4", "A", "10.0.0.9:443", match.PlainBytes, "", "", "close at server_names", ""},
		{"other SNI", "A", "10.0.0.9:443", match.TLSHello, "www.example.com", "", "close at server_names", ""},
		{"no SNI", "A", "10.0.0.9:443", match.TLSHello, "", "", "close at server_names", ""},
		{"SNI in upper case", "A", "10.0.0.9:443", match.TLSHello, "API.Example.COM", "", "tls_api", ""},
		{"other port", "A", "10.0.0.9:444", match.TLSHello, "api.example.com", "", "close at destination_port", ""},
		{"7", "B", "10.0.0.9:443", match.TLSHello, "a.eu.example.com", "", "tls_eu", ""},
		{"8", "B", "10.0.0.9:443", match.TLSHello, "x.y.example.com", "", "tls_*", ""},
		{"exact before wildcard", "B", "10.0.0.9:443", match.TLSHello, "api.example.com", "", "tls_api", ""},
		{"a wildcard does not admit the bare name", "B", "10.0.0.9:443", match.TLSHello, "example.com", "",
			"close at server_names", ""},
		{"a longer wildcard does not admit its bare name", "B", "10.0.0.9:443", match.TLSHello, "eu.example.com", "",
			"tls_*", ""},
		{"11", "C", "142.250.1.1:80", match.HTTP11, "", "www.google.com", "http_cidr", ""},
		{"12", "C", "8.8.8.8:80", match.HTTP11, "", "www.google.com:80", "http_80", "www"},
		{"unknown host", "C", "8.8.8.8:80", match.HTTP11, "", "other.com", "http_80", "none"},
		{"host in upper case", "C", "8.8.8.8:80", match.H2C, "", "WWW.google.com", "http_80", "www"},
		{"HTTP/1.0", "C", "8.8.8.8:80", match.HTTP10, "", "www.google.com", "close at application_protocols", ""},
		{"TCP on an HTTP port", "C", "8.8.8.8:80", match.PlainBytes, "", "", "close at application_protocols", ""},
		{"16", "D", "10.0.0.1:443", match.PlainBytes, "", "", "tcp_443", ""},
		{"17", "D", "10.0.0.1:22", match.PlainBytes, "", "", "tcp_any", ""},
		{"TCP does not admit TLS", "D", "10.0.0.1:22", match.TLSHello, "a.com", "", "close at transport_protocol", ""},
		{"19", "E", "10.1.0.1:80", match.PlainBytes, "", "", "close at transport_protocol", ""},
		{"19 closed", "E closed", "10.1.0.1:80", match.PlainBytes, "", "", "tcp_16", ""},
		{"TLS in the /16", "E", "10.1.0.1:80", match.TLSHello, "", "", "tls_16", ""},
		{"the rest of the /8", "E", "10.2.0.1:80", match.PlainBytes, "", "", "tcp_8", ""},
		{"22", "F", "8.8.8.8:80", match.HTTP11, "", "api.example.com", "http_80", "api"},
		{"23", "F", "8.8.8.8:80", match.HTTP11, "", "b.example.com:80", "http_80", "wild"},
		{"a port that no domain names", "F", "8.8.8.8:80", match.HTTP11, "", "b.example.com:8080", "http_80", "none"},
		{"port-less domain on another port", "F", "8.8.8.8:8080", match.HTTP11, "", "any.com", "http_any", "any.com"},
		{"a star for the port takes any port", "F", "8.8.8.8:8080", match.HTTP11, "", "any.com:8080", "http_any", "any.com"},
		{"26", "v6", "[b6e5:a45e:70ae:e77f:d24e:5023:375d:20a6]:443", match.TLSHello, "anything.org", "", "tls_ip", ""},
		{"v6 plain", "v6", "[b6e5:a45e:70ae:e77f:d24e:5023:375d:20a6]:443",
			match.PlainBytes, "", "", "close at transport_protocol", ""},
		{"v6 other address", "v6", "[b6e5::1]:443", match.TLSHello, "anything.org", "", "close at destination_ip", ""},
		{"server first", "A", "10.0.0.1:443", match.ServerFirst, "", "", "close at listener_filters", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := passthrough(policies[c.policy]...)
			if c.policy == "v6" {
				l.Address = address("::", 15001)
			}
			messages := []proto.Message{l}
			for _, name := range []string{"www", "none", "api", "wild", "any.com"} {
				messages = append(messages, originalDst(name))
			}
			for _, ch := range l.FilterChains {
				messages = append(messages, originalDst(ch.Name))
			}
			config := match.Open(snapshot(t, messages...), nil)
			conn := through(c.dst, c.first, c.sni)
			var got *match.Trace
			if c.host != "" {
				got = config.Request(conn, &match.Request{Host: c.host})
			} else {
				got = config.Connection(conn)
			}
			if level, closed := strings.CutPrefix(c.chain, "close at "); closed {
				if got.Outcome != match.NoChain && got.Outcome != match.TimedOut || got.At.String() != level {
					t.Fatalf("%v at %v (%s), want it closed at %s\n%+v", got.Outcome, got.At, got.Reason, level, got.Steps)
				}
				return
			}
			if got.Outcome != match.Forwarded || got.Chain == nil || chosen(got, match.LevelChain) != c.chain {
				t.Fatalf("%v at %v (%s), chain %q, want %s\n%+v", got.Outcome, got.At, got.Reason, chosen(got, match.LevelChain),
					c.chain, got.Steps)
			}
			cluster := c.cluster
			if cluster == "" {
				cluster = c.chain
			}
			if len(got.Targets) != 1 || got.Targets[0].Cluster != cluster || got.Targets[0].Endpoints[0] != c.dst {
				t.Fatalf("it goes to %+v, want cluster %s and %s", got.Targets, cluster, c.dst)
			}
		})
	}
}

// chosen returns the last choice at a level.
func chosen(t *match.Trace, l match.Level) string {
	out := ""
	for _, s := range t.Steps {
		if s.Level == l {
			out = s.Choice
		}
	}
	return out
}
