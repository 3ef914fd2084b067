package route_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// manyRoutes returns a mesh with a policy of n rules, close to the maximum size of a document.
func manyRoutes(n int) []byte {
	var b strings.Builder
	b.WriteString(fuzzMesh)
	b.WriteString(
		`{"type":"MeshHTTPRoute","name":"p","spec":{"to":[{"targetRef":{"kind":"MeshService","name":"b"},"rules":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"matches":[{"path":{"type":"PathPrefix","value":"/r%d"}}],"default":{"backendRefs":[{"kind":"MeshServiceSubset","name":"b","tags":{"v":"%d"}},{"kind":"MeshService","name":"b"}]}}`, i, i%10)
	}
	b.WriteString(`]}]}}`)
	return []byte(b.String())
}

// manyOutbounds returns a proxy with n outbounds and one TrafficRoute.
func manyOutbounds(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"type":"Mesh","name":"default"}
---
{"type":"TrafficRoute","name":"all",` + conf(`"destination":{"kuma.io/service":"*"},"loadBalancer":{"random":{}}`) + `}
---
{"type":"Dataplane","name":"web-01","networking":{"address":"10.0.0.1","inbound":[{"port":80,"tags":{"kuma.io/service":"web","kuma.io/protocol":"http"}}],"outbound":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"port":%d,"tags":{"kuma.io/service":"s%d"}}`, 10000+i, i)
	}
	b.WriteString("]}}\n")
	for i := range n {
		fmt.Fprintf(&b, "---\n"+`{"type":"Dataplane","name":"s%d","networking":{"address":"10.1.%d.%d","inbound":[{"port":80,"tags":{"kuma.io/service":"s%d","kuma.io/protocol":"http"}}]}}`+"\n", i, i/250, i%250, i)
	}
	return []byte(b.String())
}

// TestManyRoutes checks that a document with 5,000 rules results in 10,001 routes in the order of
// their prefixes.
func TestManyRoutes(t *testing.T) {
	p := kindtest.Generator(t, manyRoutes(5000), "web-01")()
	if len(p.Warnings) > 0 {
		t.Errorf("warnings: %v", p.Warnings)
	}
	doc, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	l := string(doc["type.googleapis.com/envoy.config.listener.v3.Listener"]["outbound:127.0.0.1:10001"])
	if n := strings.Count(l, `"match"`); n != 10_001 {
		t.Errorf("%d routes, want 10,001", n)
	}
	if strings.Index(l, `"/r1000/"`) > strings.Index(l, `"/r100/"`) {
		t.Error("a shorter prefix precedes a longer one")
	}
}

func BenchmarkRoutes(b *testing.B) {
	for _, bb := range []struct {
		name  string
		input []byte
	}{{"5000 rules", manyRoutes(5000)}, {"1000 outbounds of a TrafficRoute", manyOutbounds(1000)}} {
		b.Run(bb.name, func(b *testing.B) {
			generate := kindtest.Generator(b, bb.input, "web-01")
			b.ReportAllocs()
			for b.Loop() {
				generate()
			}
		})
	}
}
