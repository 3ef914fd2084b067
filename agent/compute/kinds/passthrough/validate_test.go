package passthrough_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/passthrough"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", passthrough.Plugin()) }

func faultsOf(docs string) resource.Faults {
	_, faults := kinds.Registry().Decode("", []byte(docs))
	return faults
}

// entry returns the conf of one match.
func entry(m string) string { return `{"appendMatch":[` + m + `]}` }

func entries(ms ...string) string {
	for i := range ms {
		ms[i] = matchText(ms[i])
	}
	return entry(strings.Join(ms, ","))
}

const one = `{"kind":"Dataplane","name":"d"}`

func TestAccepted(t *testing.T) {
	for _, conf := range []string{
		`{}`,
		`{"passthroughMode":"All"}`, `{"passthroughMode":"None"}`, `{"passthroughMode":"Matched"}`,
		`{"enabled":true}`, `{"enabled":false}`, `{"enabled":true,"passthroughMode":"All"}`,
		`{"enabled":false,"passthroughMode":"Matched"}`, `{"enabled":false,"passthroughMode":"None"}`,
		entries("tls a.com:443", "tls *.a.com", "tls *", "tls a.com"), entry(`{"type":"IP","value":"10.0.0.1"}`),
		entries("http a.com", "http *.a.com:80", "http b.com:80", "tls a.com:80", "tcp 10.0.0.1:80", "http 10.0.0.0/8:80"),
		entries("grpc 10.0.0.1", "http 10.0.0.2", "http2 10.0.0.0/8"),
		entries("grpc a.com:1", "grpc b.com", "http 10.0.0.1:2", "http2 10.0.0.1:3"),
		entries("mysql 10.0.0.1:3306", "mysql 10.0.0.0/8:3306", "tcp 10.0.0.2:3306", "tls 10.0.0.2:443", "tls a.com"),
		entries("mysql 10.0.0.1:3306", "tls [2001:db8::1]:3306"),
		entries("tcp 0.0.0.0/0", "tcp ::/0", "tls 10.1.2.3/8:65535", "tls ::ffff:10.0.0.0/104:1", "tls ::ffff:0:0/90:1",
			"tcp ::ffff:10.0.0.1"),
		entries("tls xn--bcher-kva.example:443", "tls a.com.:443", "tls localhost:443", "tls _x.a-b.c1:443",
			"tls *.example.*:443", "tls 1.a:443", "tls API.EXAMPLE.COM:443"),
		entry(matchText("tls " + strings.Repeat("a.", 126) + "a:443")),
	} {
		rs, faults := kinds.Registry().Decode("", []byte(document("p", one, conf)))
		if len(faults) > 0 {
			t.Errorf("%s: %v", conf, faults)
			continue
		}
		out, err := json.Marshal(rs[0].Spec.(*resource.Policy).Default)
		if err != nil || !kindtest.SameJSON(t, string(out), conf) {
			t.Errorf("%s\nis encoded as %s (%v)", conf, out, err)
		}
	}
}

func TestRefused(t *testing.T) {
	value := func(typ, value string) string {
		b, _ := json.Marshal(value)
		return entry(`{"type":"` + typ + `","value":` + string(b) + `,"protocol":"tls","port":443}`)
	}
	const first, second = "appendMatch[0].", "appendMatch[1]."
	for _, c := range []struct{ conf, field, reason string }{
		{`{"passthroughMode":"Some"}`, "passthroughMode", "All, Matched, None"},
		{`{"passthroughMode":""}`, "passthroughMode", "All, Matched, None"},
		{`{"enabled":true,"passthroughMode":"Matched"}`, "enabled", "contradicts passthroughMode Matched"},
		{`{"enabled":false,"passthroughMode":"All"}`, "enabled", "contradicts passthroughMode All"},
		{`{"matchAppend":[]}`, "matchAppend", `did you mean "appendMatch"?`},
		{entry(`{}`), first + "type", "Domain, IP, CIDR"},
		{entry(`{"type":"IP","value":"10.0.0.1","protocol":"udp"}`), first + "protocol", "tls, tcp, mysql, http, http2, grpc"},
		{entry(`{"type":"Host","value":"a.com","protocol":"tls"}`), first + "type", "Domain, IP, CIDR"},
		{entry(`{"type":"IP","value":"10.0.0.1","protocol":"udp"}`), first + "protocol", "tls, tcp"},
		{entry(`{"type":"IP","protocol":"tls"}`), first + "value", "missing"},
		{entry(`{"type":"CIDR","protocol":"tls"}`), first + "value", "missing"},
		{entry(`{"type":"Domain","protocol":"tls"}`), first + "value", "missing"},
		{entries("tcp 10.0.0.1:0"), first + "port", "1 to 65535"},
		{entries("tcp 10.0.0.1:65536"), first + "port", "1 to 65535"},
		{entry(`{"type":"IP","value":"10.0.0.1","protocol":"tcp","port":-1}`), first + "port", "out of range"},
		{entry(`{"type":"IP","value":"10.0.0.1","protocol":"tcp","port":"80"}`), first + "port", "number"},
		{entries("tcp a.com:443"), first + "protocol", "cannot be combined with a domain"},
		{entries("mysql a.com:443"), first + "protocol", "cannot be combined with a domain"},
		{entries("mysql 10.0.0.1"), first + "protocol", "requires a port"},
		{entries("http *.a.com"), first + "port", "known port"},
		{entries("grpc *"), first + "port", "known port"},
		{value("IP", "10.0.0.0/8"), first + "value", "type CIDR"},
		{value("IP", "10.0.0.1:80"), first + "value", "a port"},
		{value("IP", "[::1]"), first + "value", "brackets"},
		{value("IP", " 10.0.0.1"), first + "value", "spaces"},
		{value("IP", "010.0.0.1"), first + "value", "not an IP address"},
		{value("IP", "fe80::1%eth0"), first + "value", `remove "%eth0"`},
		{value("IP", "a.com"), first + "value", "not an IP address"},
		{value("CIDR", "10.0.0.1"), first + "value", "type IP"},
		{value("CIDR", "10.0.0.0/33"), first + "value", "0 to 32"},
		{value("CIDR", "10.0.0.0/08"), first + "value", "0 to 32"},
		{value("CIDR", "10.0.0.0/-1"), first + "value", "0 to 32"},
		{value("CIDR", "::/129"), first + "value", "0 to 128"},
		{value("CIDR", "fe80::%eth0/64"), first + "value", "without a zone"},
		{value("Domain", "10.0.0.1"), first + "value", "type IP"},
		{value("Domain", "2001:db8::1"), first + "value", "type IP"},
		{value("Domain", "10.0.0.0/8"), first + "value", "type CIDR"},
		{value("Domain", "*foo.example.com"), first + "value", "use *.foo.example.com"},
		{value("Domain", "**"), first + "value", "whole label"},
		{value("Domain", "*."), first + "value", "1 to 63 characters"},
		{value("Domain", "a.*.com"), first + "value", "must be the first label"},
		{value("Domain", "*.a*.com"), first + "value", "must be the first label"},
		{value("Domain", "a b"), first + "value", "only letters"},
		{value("Domain", " a.com"), first + "value", "only letters"},
		{value("Domain", "a..com"), first + "value", "1 to 63 characters"},
		{value("Domain", "."), first + "value", "1 to 63 characters"},
		{value("Domain", "a.com.."), first + "value", "1 to 63 characters"},
		{value("Domain", "-a.com"), first + "value", "begins or ends with '-'"},
		{value("Domain", "a-.com"), first + "value", "begins or ends with '-'"},
		{value("Domain", "a.123"), first + "value", "no letter"},
		{value("Domain", "a.com:443"), first + "value", "the field port"},
		{value("Domain", "https://a.com"), first + "value", "the field port"},
		{value("Domain", "bücher.example"), first + "value", "xn--"},
		{value("Domain", "\u212aelvin.example"), first + "value", "xn--"}, // Kelvin sign, which folds to an ASCII k
		{value("Domain", strings.Repeat("a", 64)+".com"), first + "value", "1 to 63"},
		{value("Domain", strings.Repeat("a.", 127)+"a"), first + "value", "at most 253"},
		{entries("tls a.com:443", "tls a.com:443"), second + "value", "appendMatch[0] is identical"},
		{entries("tcp 10.0.0.1", "tcp 10.0.0.1"), second + "value", "appendMatch[0] is identical"},
		{entries("http a.com:80", "grpc b.com:80"), second + "port", "contradicts appendMatch[0]"},
		{entries("grpc b.com:80", "http a.com:80"), second + "port", "contradicts appendMatch[0]"},
		{entries("http 10.0.0.1:80", "grpc 10.0.0.2:80"), second + "port", "contradicts appendMatch[0]"},
		{entries("http a.com", "grpc b.com"), second + "port", "contradicts appendMatch[0]"},
		{entries("http a.com", "grpc b.com:80"), second + "port", "contradicts appendMatch[0]"},
		{entries("grpc b.com:80", "http a.com"), second + "port", "contradicts appendMatch[0]"},
		{entries("grpc 10.0.0.1/32:80", "http 10.0.0.1"), second + "port", "contradicts appendMatch[0]"},
		{entries("grpc 0.0.0.0/0:80", "http a.com"), second + "port", "contradicts appendMatch[0]"},
		{entries("mysql 10.0.0.1:80", "tls 10.0.0.2:80"), second + "protocol", "shadowed by appendMatch[0]"},
		{entries("http a.com:80", "mysql 10.0.0.1:80"), first + "protocol", "shadowed by appendMatch[1]"},
	} {
		refused(t, document("p", one, c.conf), "spec.default."+c.field, c.reason)
	}
}

func refused(t *testing.T, doc, field, reason string) {
	t.Helper()
	faults := faultsOf(doc)
	for _, f := range faults {
		if f.Field == field && strings.Contains(f.Reason, reason) {
			return
		}
	}
	t.Errorf("%s\nwant a fault at %s with %q, got %v", doc, field, reason, faults)
}

// TestTargets checks that mysql, and a match without a protocol, are rejected for all proxies of a
// mesh, and that other kinds of targetRefs are rejected.
func TestTargets(t *testing.T) {
	mysql := entries("tcp 10.0.0.1:80", "mysql 10.0.0.1:3306")
	unnamed := entry(matchText("tcp 10.0.0.1:80") + `,{"type":"IP","value":"10.0.0.2"}`)
	for ref, ok := range map[string]bool{
		`{"kind":"Mesh"}`:                            false,
		`{"kind":"MeshSubset"}`:                      false,
		`{"kind":"Dataplane"}`:                       false,
		`{"kind":"MeshSubset","tags":{"team":"a"}}`:  true,
		`{"kind":"Dataplane","name":"d"}`:            true,
		`{"kind":"Dataplane","labels":{"team":"a"}}`: true,
	} {
		for conf, reason := range map[string]string{
			mysql: "not allowed for a whole mesh", unnamed: "a match for a whole mesh must name it",
		} {
			doc := document("p", ref, conf)
			if !ok {
				refused(t, doc, "spec.default.appendMatch[1].protocol", reason)
			} else if f := faultsOf(doc); len(f) > 0 {
				t.Errorf("%s: %v", ref, f)
			}
		}
	}
	for _, kind := range []string{"MeshGateway", "MeshService", "MeshServiceSubset", "MeshHTTPRoute"} {
		refused(t, document("p", `{"kind":"`+kind+`","name":"x"}`, `{}`),
			"spec.targetRef.kind", "Mesh, MeshSubset, Dataplane")
	}
}

// TestManyMatches checks the limit, and that validation up to the limit is fast.
func TestManyMatches(t *testing.T) {
	list := make([]string, 10_001)
	for i := range list {
		list[i] = matchText(fmt.Sprintf("tls n%d.example.com:443", i))
	}
	if f := faultsOf(document("p", one, entry(strings.Join(list[1:], ",")))); len(f) > 0 {
		t.Errorf("10,000 matches: %v", f)
	}
	refused(t, document("p", one, entry(strings.Join(list, ","))),
		"spec.default.appendMatch", "10001 matches are given, and at most 10000")
}

// FuzzMatch checks that an accepted match is effective and that Envoy accepts the result.
func FuzzMatch(f *testing.F) {
	for _, m := range []string{
		"Domain a.com tls 443", "Domain *.a.com http 80", "Domain * tls 0", "IP 10.0.0.1 tcp 0",
		"IP ::ffff:1.2.3.4 mysql 3306", "CIDR 10.1.2.3/8 grpc 65535", "CIDR ::/0 tls 1", "Domain *.x.* http2 9",
	} {
		p := strings.Fields(m)
		var port uint32
		fmt.Sscan(p[3], &port)
		f.Add(p[0], p[1], p[2], port)
	}
	f.Fuzz(func(t *testing.T, typ, value, protocol string, port uint32) {
		if !utf8.ValidString(typ + value + protocol) {
			return // not possible in JSON
		}
		m := map[string]any{"type": typ, "value": value, "protocol": protocol}
		if port != 0 {
			m["port"] = port
		}
		conf, err := json.Marshal(map[string]any{"appendMatch": []any{m}})
		if err != nil {
			t.Fatal(err)
		}
		docs := base + policyOf("p", string(conf))
		if len(faultsOf(docs)) > 0 {
			return
		}
		e, _ := newEnvoy(t, docs)
		chains := 0
		for _, l := range e.listeners {
			for _, c := range l.message.FilterChains {
				if c.Name != "" {
					chains++
				}
			}
		}
		if chains == 0 {
			t.Errorf("%s is accepted and permits nothing", conf)
		}
	})
}
