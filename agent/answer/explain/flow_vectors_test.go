package explain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
)

// redirected returns a mesh with a transparent proxy and a MeshPassthrough with these entries, such
// as "tls Domain api.example.com 443" (port 0: all).
func redirected(entries ...string) string {
	out := `type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 192.168.7.1
  inbound: [{port: 8080, tags: {kuma.io/service: web}}]
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}
`
	if len(entries) == 0 {
		return out
	}
	out += `---
type: MeshPassthrough
mesh: default
name: p
spec:
  targetRef: {kind: Mesh}
  default:
    passthroughMode: Matched
    appendMatch:
`
	for _, e := range entries {
		var protocol, kind, value string
		var port int
		if _, err := fmt.Sscan(e, &protocol, &kind, &value, &port); err != nil {
			panic(err)
		}
		out += fmt.Sprintf("    - {type: %s, value: %q, protocol: %s", kind, value, protocol)
		if port != 0 {
			out += fmt.Sprintf(", port: %d", port)
		}
		out += "}\n"
	}
	return out
}

// question parses "connection TO [tls] [sni=…] [alpn=…] [ip=…]" and "request TO [host=…] [path=…]
// [http2] …".
func question(t testing.TB, line string) *asked {
	t.Helper()
	words := strings.Fields(line)
	target := explain.Target{From: "web", To: words[1]}
	q := &asked{}
	c, r := &explain.ConnectionQuestion{}, &explain.RequestQuestion{}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "tls":
			c.TLS = true
		case "sni":
			c.TLS, c.SNI = true, &value
		case "alpn":
			c.TLS, c.ALPN = true, strings.Split(value, ",")
		case "ip":
			target.IP = value
		case "from":
			target.From = value
		case "shadow":
			target.Shadow = true
		case "http2":
			r.HTTP2 = true
		case "method":
			r.Method = value
		case "path":
			r.Path = value
		default:
			r.Headers = append(r.Headers, explain.Header{Name: name, Value: value})
		}
	}
	c.Target, r.Target = target, target
	if words[0] == "request" {
		q.Request = r
	} else {
		q.Connection = c
	}
	return q
}

// TestVectors runs the cases for Envoy's choice of a filter chain through complete documents: the
// chain, the cluster, and the policy behind it. An entry permits its connections whatever other
// entries exist.
func TestVectors(t *testing.T) {
	const entry = "spec.default.appendMatch[%d]"
	a := redirected("tls Domain api.example.com 443", "tcp IP 10.0.0.1 443")
	b := redirected("tls Domain *.example.com 443", "tls Domain api.example.com 443", "tls Domain *.eu.example.com 443")
	c := redirected("http Domain www.google.com 80", "http CIDR 142.250.0.0/15 80")
	d := redirected("tcp IP 10.0.0.1 0", "tls Domain a.com 443")
	e := redirected("tcp CIDR 10.0.0.0/8 0", "tls CIDR 10.1.0.0/16 0")
	f := redirected("http Domain *.example.com 80", "http Domain api.example.com 80", "http Domain any.com 0")
	six := redirected("tls IP b6e5:a45e:70ae:e77f:d24e:5023:375d:20a6 443", "tcp CIDR 2001:db8::/32 0")
	my := redirected("mysql IP 10.0.0.1 3306", "tcp IP 10.0.0.3 3306")
	my = strings.Replace(my, "{kind: Mesh}", "{kind: Dataplane, name: web}", 1)
	beside := strings.Replace(redirected("mysql IP 10.1.1.1 3306", "tcp CIDR 10.0.0.0/8 0", "tcp CIDR 10.0.0.0/8 99"),
		"{kind: Mesh}", "{kind: Dataplane, name: web}", 1)
	none := redirected()
	for _, tc := range []struct {
		name, docs, ask string
		verdict         string
		cluster         string // the expected cluster
		entry           int    // index of the deciding entry, -1 for none
		closedAt        string
	}{
		{"1", a, "connection 10.0.0.9:443 sni=api.example.com", "allowed", "meshpassthrough_tls_api.example.com_443", 0, ""},
		{"2, with the closure", a, "connection 10.0.0.1:443 sni=api.example.com",
			"allowed", "meshpassthrough_tls_api.example.com_443", 0, ""},
		{"3", a, "connection 10.0.0.1:443", "allowed", "meshpassthrough_tcp_10.0.0.1_443", 1, ""},
		{"4", a, "connection 10.0.0.9:443", "closed", "", -1, "server-name"},
		{"tcp permits TLS", a, "connection 10.0.0.1:443 sni=b.example.com",
			"allowed", "meshpassthrough_tcp_10.0.0.1_443", 1, ""},
		{"the case of a server name", a, "connection 10.0.0.9:443 sni=API.Example.COM",
			"allowed", "meshpassthrough_tls_api.example.com_443", 0, ""},
		{"no server name", a, "connection 10.0.0.9:443 tls", "closed", "", -1, "server-name"},
		{"a name without an address", a, "connection api.example.com:443 tls",
			"allowed", "meshpassthrough_tls_api.example.com_443", 0, ""},
		{"a name and its address", a, "connection api.example.com:443 tls ip=10.0.0.1",
			"allowed", "meshpassthrough_tls_api.example.com_443", 0, ""},
		{"another port", a, "connection 10.0.0.1:22", "closed", "", -1, "destination-port"},
		{"IPv6 has no entry of IPv4", a, "connection [2001:db8::1]:443", "closed", "", -1, "server-name"},
		{"IPv4 within IPv6", a, "connection [::ffff:10.0.0.1]:443", "allowed", "meshpassthrough_tcp_10.0.0.1_443", 1, ""},
		{"7", b, "connection 10.0.0.9:443 sni=a.eu.example.com",
			"allowed", "meshpassthrough_tls_*.eu.example.com_443", 2, ""},
		{"8", b, "connection 10.0.0.9:443 sni=x.y.example.com", "allowed", "meshpassthrough_tls_*.example.com_443", 0, ""},
		{"the exact name goes first", b, "connection 10.0.0.9:443 sni=api.example.com",
			"allowed", "meshpassthrough_tls_api.example.com_443", 1, ""},
		{"a wildcard is not the name below it", b, "connection 10.0.0.9:443 sni=example.com",
			"closed", "", -1, "server-name"},
		{"11", c, "request 142.250.1.1:80 host=www.google.com", "allowed", "meshpassthrough_http_142.250.0.0/15_80", 1, ""},
		{"12", c, "request 8.8.8.8:80 host=www.google.com:80", "allowed", "meshpassthrough_http_www.google.com_80", 0, ""},
		{"another host", c, "request 8.8.8.8:80 host=www.example.com", "denied", "", -1, ""},
		{"any host of the network", c, "request 142.250.1.1:80 host=www.example.com",
			"allowed", "meshpassthrough_http_142.250.0.0/15_80", 1, ""},
		{"no HTTP where HTTP is allowed", c, "connection 8.8.8.8:80", "closed", "", -1, ""},
		{"TLS where HTTP is allowed", c, "connection 8.8.8.8:80 sni=www.google.com", "closed", "", -1, "transport-protocol"},
		{"16", d, "connection 10.0.0.1:443", "allowed", "meshpassthrough_tcp_10.0.0.1_*", 0, ""},
		{"17", d, "connection 10.0.0.1:22", "allowed", "meshpassthrough_tcp_10.0.0.1_*", 0, ""},
		{"the other port", d, "connection 10.0.0.1:443 sni=a.com", "allowed", "meshpassthrough_tls_a.com_443", 1, ""},
		{"19, with the closure", e, "connection 10.1.0.1:5000", "allowed", "meshpassthrough_tcp_10.0.0.0/8_*", 0, ""},
		{"the narrow network", e, "connection 10.1.0.1:5000 tls", "allowed", "meshpassthrough_tls_10.1.0.0/16_*", 1, ""},
		{"TLS in the wide network", e, "connection 10.2.0.1:5000 tls", "allowed", "meshpassthrough_tcp_10.0.0.0/8_*", 0, ""},
		{"22", f, "request 10.0.0.9:80 host=api.example.com", "allowed", "meshpassthrough_http_api.example.com_80", 1, ""},
		{"23", f, "request 10.0.0.9:80 host=b.example.com:80", "allowed", "meshpassthrough_http_*.example.com_80", 0, ""},
		{"a domain on all ports", f, "request 10.0.0.9:8080 host=any.com:8080",
			"allowed", "meshpassthrough_http_any.com_*", 2, ""},
		{"the host of the target", f, "request api.example.com:80", "allowed", "meshpassthrough_http_api.example.com_80",
			1, ""},
		{"HTTP/2 is HTTP here", f, "request api.example.com:80 http2",
			"allowed", "meshpassthrough_http_api.example.com_80", 1, ""},
		{"26", six, "connection [b6e5:a45e:70ae:e77f:d24e:5023:375d:20a6]:443 sni=any.example",
			"allowed", "meshpassthrough_tls_b6e5:a45e:70ae:e77f:d24e:5023:375d:20a6_443", 0, ""},
		{"a network of IPv6", six, "connection [2001:db8:7::9]:25", "allowed", "meshpassthrough_tcp_2001:db8::/32_*", 1, ""},
		{"mysql", my, "connection 10.0.0.1:3306", "allowed", "meshpassthrough_tcp_10.0.0.1_3306", 0, ""},
		{"TLS where mysql switches inspection off", beside, "connection 10.1.1.2:3306 tls",
			"allowed", "meshpassthrough_tcp_10.0.0.0/8_*", 1, ""},
		{"one network on a port and on all", beside, "connection 10.1.1.2:99", "allowed", "meshpassthrough_tcp_10.0.0.0/8_99",
			2, ""},
		{"all passes", none, "connection 8.8.8.8:53", "allowed", "outbound:passthrough:ipv4", -1, ""},
		{"all of IPv6 passes", none, "connection [2001:db8::1]:53", "allowed", "outbound:passthrough:ipv6", -1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			flow, err := question(t, tc.ask).ask(explain.NewTraffic(meshOf(t, tc.docs)))
			if err != nil {
				t.Fatal(err)
			}
			if flow.Verdict != tc.verdict || flow.ClosedAt != tc.closedAt {
				t.Errorf("%s at %q: %s; want %s at %q", flow.Verdict, flow.ClosedAt, flow.Reason, tc.verdict, tc.closedAt)
			}
			if got := clusters(flow); tc.verdict == "allowed" && !slices.Equal(got, []string{tc.cluster}) {
				t.Errorf("the clusters are %v, want %s", got, tc.cluster)
			}
			var behind []string
			for _, p := range flow.Policies {
				if p.Type == "MeshPassthrough" {
					behind = append(behind, p.Field)
				}
			}
			var want []string
			switch {
			case tc.entry >= 0:
				want = []string{fmt.Sprintf(entry, tc.entry)}
			case tc.docs != none:
				want = []string{"spec.default.passthroughMode"}
			}
			if !slices.Equal(behind, want) {
				t.Errorf("policies behind it are %v, want %v", behind, want)
			}
			if (flow.Verdict == "allowed") != (flow.Suggest == "") {
				t.Errorf("%s with suggestion %q", flow.Verdict, flow.Suggest)
			}
			if flow.Suggest != "" {
				then, err := question(t, tc.ask).ask(explain.NewTraffic(meshOf(t, tc.docs+"---\n"+flow.Suggest)))
				if err != nil || then.Verdict != "allowed" {
					t.Errorf("with the suggestion applied: %v, %v:\n%s", then, err, flow.Suggest)
				}
			}
		})
	}
}

func clusters(f *explain.Flow) []string {
	var out []string
	for _, c := range f.Clusters {
		out = append(out, c.Name)
	}
	return out
}

// TestSpoofedServerName checks that an allowed name goes to the address that the proxy resolves. A
// server name sent to another address reaches only the named server.
func TestSpoofedServerName(t *testing.T) {
	docs := redirected("tls Domain api.example.com 443", "tls Domain *.example.org 443", "tls CIDR 10.9.0.0/16 443")
	for ask, pinned := range map[string]bool{
		"connection 203.0.113.66:443 sni=api.example.com": true,
		"connection 203.0.113.66:443 sni=www.example.org": false, // the address of a wildcard host is unknown
		"connection 10.9.0.1:443 sni=evil.example":        false,
	} {
		flow, err := question(t, ask).ask(explain.NewTraffic(meshOf(t, docs)))
		if err != nil || len(flow.Clusters) != 1 {
			t.Fatalf("%s: %v, %v", ask, flow, err)
		}
		c := flow.Clusters[0]
		if c.Pinned != pinned {
			t.Errorf("%s: %+v, want pinned %v", ask, c, pinned)
		}
		if own := slices.Contains(c.Addresses, "203.0.113.66:443"); own && pinned {
			t.Errorf("%s: the dialed address is used: %v", ask, c.Addresses)
		}
	}
}
