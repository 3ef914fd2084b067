package edges_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/edges"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	meshes "github.com/nearside-mesh/nearside/agent/test/uitest/mesh"
)

// BenchmarkEdges measures the first answer after a change of a mesh, and a later page.
func BenchmarkEdges(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		lists := meshes.Files(meshes.Options{Services: n, MTLS: true})
		for name, docs := range map[string][]string{
			"lists": lists, // each dataplane lists 8 services
			"open":  {open(n, "")},
			"own":   {open(n, own(n))}, // each service has its own permission, and proxies reach all
		} {
			once := sync.OnceValue(func() *generate.Mesh { return build(b, docs) })
			b.Run(fmt.Sprintf("%s/%d/first", name, n), func(b *testing.B) {
				m := once()
				b.ReportAllocs()
				for b.Loop() {
					p := edges.NewGraph(m, nil).Page(edges.Query{})
					if len(p.Services(nil)) < n || len(p.Edges(0, 1000)) == 0 {
						b.Fatal("no answer")
					}
				}
			})
			b.Run(fmt.Sprintf("%s/%d/next", name, n), func(b *testing.B) {
				g := edges.NewGraph(once(), nil)
				g.Page(edges.Query{})
				b.ReportAllocs()
				for b.Loop() {
					p := g.Page(edges.Query{})
					p.Edges(p.Total/2, 1000)
				}
				b.ReportMetric(float64(g.Page(edges.Query{}).Total), "edges")
			})
		}
	}
}

func build(tb testing.TB, docs []string) *generate.Mesh {
	tb.Helper()
	rs, faults := kinds.Registry().Decode("resources.yaml", []byte(strings.Join(docs, "\n---\n")))
	if err := faults.Err(); err != nil {
		tb.Fatal(err)
	}
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// open returns a mesh in which transparent proxies reach all services.
func open(n int, more string) string {
	var b strings.Builder
	b.WriteString(`{"type":"Mesh","name":"default","mtls":{"enabledBackend":"ca","backends":[{"name":"ca","type":"builtin"}]}}`)
	for i := range n {
		fmt.Fprintf(&b, "\n---\n"+`{"type":"Dataplane","mesh":"default","name":"s%d","networking":{"address":"10.%d.%d.1",`+
			`"inbound":[{"port":80,"tags":{"kuma.io/service":"s%d","kuma.io/protocol":"http"}}],`+
			`"transparentProxying":{"redirectPortInbound":15006,"redirectPortOutbound":15001}}}`, i, i/250, i%250, i)
	}
	if more == "" {
		more = "\n---\n" + `{"type":"MeshTrafficPermission","mesh":"default","name":"all","spec":{"from":[{"targetRef":` +
			`{"kind":"Mesh"},"default":{"action":"Allow"}}]}}`
	}
	return b.String() + more
}

// own returns a permission for each service, which allows 4 clients.
func own(n int) string {
	var b strings.Builder
	for i := range n {
		var from []string
		for j := range 4 {
			from = append(from, fmt.Sprintf(`{"targetRef":{"kind":"MeshService","name":"s%d"},"default":{"action":"Allow"}}`,
				(i+j*7)%n))
		}
		fmt.Fprintf(&b, "\n---\n"+`{"type":"MeshTrafficPermission","mesh":"default","name":"p%d","spec":{"targetRef":`+
			`{"kind":"MeshService","name":"s%d"},"from":[%s]}}`, i, i, strings.Join(from, ","))
	}
	return b.String()
}
