package route_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

const fuzzMesh = `{"type":"Mesh","name":"default"}
---
{"type":"Dataplane","name":"web-01","networking":{"address":"10.0.0.1","inbound":[{"port":80,"tags":{"kuma.io/service":"web","kuma.io/protocol":"http"}}],
"outbound":[{"port":10001,"tags":{"kuma.io/service":"b"}}]}}
---
{"type":"Dataplane","name":"b-01","networking":{"address":"10.0.0.2","inbound":[{"port":80,"tags":{"kuma.io/service":"b","kuma.io/protocol":"grpc"}}]}}
---
`

// FuzzPolicies checks that documents never cause a panic, and that accepted policies result in
// valid messages, so that a policy never invalidates a listener.
func FuzzPolicies(f *testing.F) {
	for _, s := range []string{
		match(`{"path":{"type":"PathPrefix","value":"/a"},"method":"GET","queryParams":[{"type":"Exact","name":"q","value":""}],"headers":[{"name":"a","type":"Absent"}]}`),
		match(`{"path":{"type":"RegularExpression","value":"/(a|b)*"}}`),
		filters(
			`{"type":"URLRewrite","urlRewrite":{"hostname":"a.b","path":{"type":"ReplaceFullPath","replaceFullPath":"/\\1"}}}`),
		filters(`{"type":"RequestRedirect","requestRedirect":{"path":{"type":"ReplacePrefixMatch","replacePrefixMatch":"/"},"port":1,"statusCode":303}}`),
		filters(
			`{"type":"RequestMirror","requestMirror":{"percentage":0.001,"backendRef":{"kind":"MeshService","name":"b"}}}`),
		filters(`{"type":"ResponseHeaderModifier","responseHeaderModifier":{"set":[{"name":"a","value":"%PROTOCOL%"}],"remove":["b"]}}`),
		refs(`{"kind":"MeshServiceSubset","name":"b","tags":{"v":"1"},"weight":3},{"kind":"MeshService","name":"web","port":80}`),
	} {
		f.Add("MeshHTTPRoute", s)
	}
	f.Add("MeshTCPRoute", `"spec":{"to":[{"targetRef":{"kind":"MeshService","name":"b"},"rules":[{"default":{"backendRefs":[{"kind":"MeshService","name":"b"}]}}]}]}`)
	f.Add("TrafficRoute", legacyRule(`"match":{"path":{"prefix":"/a"},"headers":{"a":{"regex":"."}}},"modify":{"path":{"rewritePrefix":"/"},"host":{"fromPath":{"pattern":"(.)","substitution":"\\1"}},"requestHeaders":{"add":[{"name":"a","value":"b"}]}}`))
	f.Add("TrafficRoute", conf(`"split":[{"weight":1,"destination":{"kuma.io/service":"b","v":"*"}}],"loadBalancer":{"ringHash":{"hashFunction":"XX_HASH"}}`))
	f.Fuzz(func(t *testing.T, kind, spec string) {
		if !strings.Contains(spec, "---") { // another document could fail
			accepted(t, kind, spec)
		}
	})
}

// accepted checks that the outbound b has a listener if the policy is accepted.
func accepted(t *testing.T, kind, spec string) {
	doc := fmt.Sprintf("%s{\"type\":%q,\"name\":\"p\",%s}", fuzzMesh, kind, spec)
	rs, faults := kinds.Registry().Decode("", []byte(doc))
	if len(faults) > 0 || len(rs) != 4 {
		return
	}
	if k := rs[3].Kind; k != "MeshHTTPRoute" && k != "MeshTCPRoute" && k != "TrafficRoute" {
		return
	}
	p := kindtest.Generator(t, []byte(doc), "web-01")()
	out, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := out["type.googleapis.com/envoy.config.listener.v3.Listener"]["outbound:127.0.0.1:10001"]; !ok {
		t.Errorf("%s\nthe outbound has no listener: %v", spec, p.Warnings)
	}
	for _, w := range p.Warnings {
		if strings.Contains(w.Reason, "it is left out") && strings.Contains(w.Reason, "Cluster") {
			t.Errorf("%s\nis accepted and causes a warning: %v", spec, w)
		}
	}
}

// FuzzValues inserts a string into every string field and checks that accepted values result in a
// valid listener.
func FuzzValues(f *testing.F) {
	for _, s := range []string{
		"", "/", "/a", "a", "A", "*", "a.b", "%", "%%", "%PROTOCOL%", "\\", "\\1", "\\\\", "\x00", "\n", "\x7f", "(", "(.)",
		".*", "é", "\xff", "a b", ":path", "?", "#",
	} {
		f.Add(s)
	}
	fields := []struct{ kind, spec string }{
		{"MeshHTTPRoute", match(`{"path":{"type":"Exact","value":@}}`)},
		{"MeshHTTPRoute", match(`{"path":{"type":"PathPrefix","value":@}}`)},
		{"MeshHTTPRoute", match(`{"path":{"type":"RegularExpression","value":@}}`)},
		{"MeshHTTPRoute", match(`{"queryParams":[{"type":"Exact","name":"a","value":@}]}`)},
		{"MeshHTTPRoute", match(`{"queryParams":[{"type":"RegularExpression","name":@,"value":"a"}]}`)},
		{"MeshHTTPRoute", match(`{"headers":[{"name":@,"value":"a"}]}`)},
		{"MeshHTTPRoute", match(`{"headers":[{"name":"a","type":"Prefix","value":@}]}`)},
		{"MeshHTTPRoute", match(`{"headers":[{"name":"a","value":@}]}`)},
		{"MeshHTTPRoute",
			filters(`{"type":"RequestHeaderModifier","requestHeaderModifier":{"add":[{"name":@,"value":"a"}]}}`)},
		{"MeshHTTPRoute",
			filters(`{"type":"RequestHeaderModifier","requestHeaderModifier":{"set":[{"name":"a","value":@}]}}`)},
		{"MeshHTTPRoute", filters(`{"type":"ResponseHeaderModifier","responseHeaderModifier":{"remove":[@]}}`)},
		{"MeshHTTPRoute", filters(`{"type":"URLRewrite","urlRewrite":{"hostname":@}}`)},
		{"MeshHTTPRoute",
			filters(`{"type":"URLRewrite","urlRewrite":{"path":{"type":"ReplaceFullPath","replaceFullPath":@}}}`)},
		{"MeshHTTPRoute", filters(`{"type":"RequestRedirect","requestRedirect":{"hostname":@}}`)},
		{"MeshHTTPRoute", httpRule(`{"matches":[{"path":{"type":"PathPrefix","value":"/a"}}],"default":{"filters":[{"type":"RequestRedirect","requestRedirect":{"path":{"type":"ReplacePrefixMatch","replacePrefixMatch":@}}}]}}`)},
		{"MeshHTTPRoute", refs(`{"kind":"MeshServiceSubset","name":@,"tags":{"v":"1"}}`)},
		{"MeshHTTPRoute", refs(`{"kind":"MeshServiceSubset","name":"b","tags":{"v":@}}`)},
		{"TrafficRoute", legacyRule(`"match":{"path":{"exact":@}}`)},
		{"TrafficRoute",
			legacyRule(`"match":{"path":{"prefix":@},"headers":{@:{"prefix":"a"}}},"modify":{"path":{"rewritePrefix":@}}`)},
		{"TrafficRoute", legacyRule(`"match":{"method":{"regex":@}},"modify":{"host":{"value":@}}`)},
		{"TrafficRoute", legacyRule(`"match":{"headers":{"a":{"exact":@}}},"modify":{"path":{"regex":{"pattern":"(.)","substitution":@}},"host":{"fromPath":{"pattern":@,"substitution":"a"}}}`)},
		{"TrafficRoute", legacyRule(`"match":{"headers":{"a":{"prefix":@}}},"modify":{"requestHeaders":{"add":[{"name":@,"value":@}]},"responseHeaders":{"remove":[{"name":@}]}}`)},
		{"TrafficRoute", conf(`"destination":{"kuma.io/service":@,"v":@}`)},
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted, err := json.Marshal(s)
		if err != nil {
			t.Skip()
		}
		for _, p := range fields {
			accepted(t, p.kind, strings.ReplaceAll(p.spec, "@", string(quoted)))
		}
	})
}
