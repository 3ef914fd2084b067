package edgesapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/edgesapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an agent with two meshes: shop, in which web may call backend and lists redis, and
// other.
type world struct {
	t       *testing.T
	now     time.Time
	meshes  map[string]*generate.Mesh
	clients []api.ProxyStatus
	counts  map[string]api.ProxyCounts
	reads   int // of the counters
	edges   *edgesapi.Edges
	hidden  map[resource.Key]bool
}

const shop = `{type: Mesh, name: shop, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}
---
type: Dataplane
mesh: shop
name: web-1
networking:
  address: 10.0.0.1
  inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http, team: a}}]
  outbound:
  - {port: 7001, tags: {kuma.io/service: backend}}
  - {port: 7002, tags: {kuma.io/service: redis}}
---
type: Dataplane
mesh: shop
name: backend-1
networking:
  address: 10.0.0.2
  inbound: [{port: 80, tags: {kuma.io/service: backend, kuma.io/protocol: http, team: b, version: v1}}]
---
type: Dataplane
mesh: shop
name: backend-2
networking:
  address: 10.0.0.3
  inbound: [{port: 80, tags: {kuma.io/service: backend, kuma.io/protocol: http, team: b, version: v2}}]
  outbound: [{port: 7002, tags: {kuma.io/service: redis}}]
---
{type: Dataplane, mesh: shop, name: redis-1, networking: {address: 10.0.0.4, inbound: [{port: 6379, tags: {kuma.io/service: redis}}]}}
---
type: MeshTrafficPermission
mesh: shop
name: web-to-backend
spec:
  targetRef: {kind: MeshService, name: backend}
  from: [{targetRef: {kind: MeshService, name: web}, default: {action: Allow}}]
`

const other = `{type: Mesh, name: other}
---
{type: Dataplane, mesh: other, name: a, networking: {address: 10.1.0.1, inbound: [{port: 80, tags: {kuma.io/service: a}}], outbound: [{port: 9, tags: {kuma.io/service: a}}]}}
`

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC), meshes: map[string]*generate.Mesh{},
		counts: map[string]api.ProxyCounts{}, hidden: map[resource.Key]bool{}}
	w.set("shop", shop)
	w.set("other", other)
	w.edges = edgesapi.New(edgesapi.Options{
		Meshes:  func() map[string]*generate.Mesh { return w.meshes },
		Proxies: func() []api.ProxyStatus { return w.clients },
		Counts:  func() map[string]api.ProxyCounts { w.reads++; return w.counts },
		Now:     func() time.Time { return w.now },
	})
	return w
}

func (w *world) set(name, docs string) {
	w.t.Helper()
	rs, faults := kinds.Registry().Decode("resources.yaml", []byte(docs))
	if err := faults.Err(); err != nil {
		w.t.Fatal(err)
	}
	m, err := generate.NewMesh(resource.NewSet(rs), name, mesh.Options{}, kinds.Plugins(), policy.Options{},
		w.meshes[name])
	if err != nil {
		w.t.Fatal(err)
	}
	w.meshes[name] = m
}

func (w *world) connect(mesh, name string) {
	w.clients = append(w.clients, api.ProxyStatus{Mesh: mesh, Name: name, NodeID: mesh + "." + name, Streams: 1,
		Flavor: node.FlavorEnvoy})
}

// get requests edges with a query.
func (w *world) get(query string) *api.Edges {
	w.t.Helper()
	rec := httptest.NewRecorder()
	e := w.edges.Serve(rec, httptest.NewRequest(http.MethodGet, "/v1/edges"+query, nil), 100,
		func(k resource.Key) bool { return len(w.hidden) == 0 || k.Name != "" && !w.hidden[k] })
	if e != nil {
		w.t.Fatalf("%s: %d %s", query, e.Status, e.Detail)
	}
	var out api.Edges
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
		w.t.Fatal(err)
	}
	return &out
}

// lines returns edges as text.
func lines(list []api.Edge) (out []string) {
	for _, e := range list {
		text := e.Mesh + " " + e.From + " > " + e.To + " " + e.Permission
		if !e.Reach {
			text += " unreachable"
		}
		if e.Policy != nil {
			text += " " + e.Policy.Name + " " + e.Policy.Field
		}
		out = append(out, text)
	}
	return out
}
