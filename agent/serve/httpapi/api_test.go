package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/edgesapi"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/prometheus/client_golang/prometheus"
)

// api is a server on a real unix socket and a client of it.
type testAPI struct {
	t      testing.TB
	store  *store.Store
	last   atomic.Pointer[status.Result]
	http   *http.Client
	base   string
	srv    *httpapi.Server
	socket string
}

func registry(t testing.TB) *resource.Registry {
	t.Helper()
	r, err := resource.NewRegistry(kinds.All()...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newMesh(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
	return generate.NewMesh(set, name, mesh.Options{}, kinds.Plugins(), policy.Options{}, prev)
}

// rolesOf decides for an agent that runs as the user of the test, unless the options name another
// one.
func rolesOf(t testing.TB, o access.RoleOptions) *access.Roles {
	t.Helper()
	if o.AgentUID == 0 {
		o.AgentUID = uint32(os.Getuid())
	}
	r, err := access.NewRoles(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func start(t testing.TB, change ...func(*httpapi.Options)) *testAPI {
	t.Helper()
	a := newTestAPI(t, change...)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	a.socket = path
	a.serve(l, "unix", path)
	return a
}

// newTestAPI returns a server that does not listen.
func newTestAPI(t testing.TB, change ...func(*httpapi.Options)) *testAPI {
	t.Helper()
	a := &testAPI{t: t, base: "http://nearside"}
	var err error
	if a.store, err = store.Open(store.Options{}); err != nil {
		t.Fatal(err)
	}
	o := httpapi.Options{Level: new(slog.LevelVar),
		Info: api.Info{Product: "nearside", Version: "v0", Node: "n1", Zone: "z1", Instance: "i1"},
		Options: write.Options{Registry: registry(t), Store: a.store, Last: a.last.Load, NewMesh: newMesh,
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil))},
		Access: httpapi.Access{Roles: rolesOf(t, access.RoleOptions{GID: -1})}, Metrics: prometheus.NewRegistry(),
	}
	o.Edges = edgesapi.New(edgesapi.Options{Now: time.Now, Meshes: func() map[string]*generate.Mesh {
		if last := a.last.Load(); last != nil {
			return last.Meshes
		}
		return nil
	}}).Serve
	for _, f := range change {
		f(&o)
	}
	a.store = o.Store
	if o.Proxies != nil {
		o.Connected = func() (out []node.Key) {
			for _, p := range o.Proxies() {
				if p.State != api.StateDisconnected {
					out = append(out, node.Key{ID: node.Ref{Type: p.Type, Mesh: p.Mesh, Name: p.Name}.NodeID(), Flavor: p.Flavor})
				}
			}
			return out
		}
	}
	if a.srv, err = httpapi.New(o); err != nil {
		t.Fatal(err)
	}
	return a
}

// serve runs the server until the test ends, or stop is called, and points the client at it.
func (a *testAPI) serve(l net.Listener, network, addr string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.srv.Serve(ctx, l) }()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}}
	a.http = &http.Client{Transport: tr, Timeout: agenttest.Patience}
	stop = sync.OnceFunc(func() {
		tr.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			a.t.Errorf("Serve: %v", err)
		}
	})
	a.t.Cleanup(stop)
	return stop
}

// put stores a resource under a source, past the API.
func (a *testAPI) put(source store.Source, docs string) {
	a.t.Helper()
	rs, faults := registry(a.t).Decode("", []byte(docs))
	if len(faults) > 0 {
		a.t.Fatal(faults)
	}
	b := store.Batch{Source: source}
	for _, r := range rs {
		b.Ops = append(b.Ops, store.Op{Put: r})
	}
	if _, err := a.store.Apply(b); err != nil {
		a.t.Fatal(err)
	}
}

// reconcile does what the agent's loop does.
func (a *testAPI) reconcile(problems ...api.Problem) {
	a.t.Helper()
	snap := a.store.Snapshot()
	l := &status.Result{Revision: snap.Revision(), Meshes: map[string]*generate.Mesh{}, At: time.Unix(1, 0),
		Duration: time.Second, Problems: problems}
	for _, m := range snap.Set().Kind("Mesh") {
		x, err := generate.NewMesh(snap.Set(), m.Name, mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
		if err != nil {
			a.t.Fatal(err)
		}
		l.Meshes[m.Name] = x
	}
	a.last.Store(l)
}

type answer struct {
	request string
	status  int
	header  http.Header
	body    string
}

// do makes a request; headers are "Name: value".
func (a *testAPI) do(method, path, body string, headers ...string) answer {
	a.t.Helper()
	req, err := http.NewRequest(method, a.base+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		if k == "Host" {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	got := answer{method + " " + path, resp.StatusCode, resp.Header, string(b)}
	documented(a.t, method, path, got)
	return got
}

// want checks the status, and that an error response is a problem document. The body must contain
// all parts.
func (a *testAPI) want(got answer, status int, parts ...string) {
	a.t.Helper()
	if got.status != status {
		a.t.Errorf("%s: status %d, want %d: %s", got.request, got.status, status, got.body)
	}
	for _, p := range parts {
		if !strings.Contains(got.body, p) {
			a.t.Errorf("%s: %q is not in %s", got.request, p, got.body)
		}
	}
	if media := got.header.Get("Content-Type"); status >= 400 && status != 503 {
		if media != "application/problem+json" {
			a.t.Errorf("%s: an error has the media type %q", got.request, media)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(got.body), &fields); err != nil {
			a.t.Fatalf("%s: not JSON: %s", got.request, got.body)
		}
		var names []string
		for k := range fields {
			names = append(names, k)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == "denied" && status == 403 })
		slices.Sort(names)
		if s := strings.Join(names, " "); s != "detail invalid_parameters status title type" {
			a.t.Errorf("a problem has the fields %s", s)
		}
	}
}

const (
	meshDoc   = `{"type":"Mesh","name":"default"}`
	timeoutUp = `{"type":"MeshTimeout","mesh":"default","name":"t1","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":%q}}]}}`
	web       = `
type: Dataplane
mesh: default
name: web
networking:
  address: 192.0.2.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound: [{port: 10001, tags: {kuma.io/service: web}}]
`
)

func timeout(d string) string { return fmt.Sprintf(timeoutUp, d) }

func TestResources(t *testing.T) {
	a := start(t)
	a.want(a.do("GET", "/meshes", ""), 200, `{"total":0,"items":[],"next":null}`)
	a.want(a.do("GET", "/meshes/default", ""), 404, "Mesh/default does not exist")
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout("5s")), 404, `mesh \"default\" does not exist`)
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201, `"action":"created"`, `"warnings":[]`)
	a.want(a.do("PUT", "/meshes/default", meshDoc), 200, `"action":"unchanged"`)
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout("5s")), 201, `"created"`)
	got := a.do("GET", "/meshes/default/meshtimeouts/t1", "")
	a.want(got, 200, `"creationTime":"2`, `"connectionTimeout":"5s"`)
	tag := got.header.Get("ETag")
	if tag == "" {
		t.Fatal("no ETag")
	}
	// A document that was read can be written back unchanged.
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", got.body), 200, `"unchanged"`)
	a.want(a.do("GET", "/meshes/default/meshtimeouts/t1", "", "If-None-Match: "+tag), 304)

	got = a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout("6s"), "If-Match: "+tag)
	a.want(got, 200, `"changed"`)
	if next := got.header.Get("ETag"); next == tag || next == "" {
		t.Errorf("ETag %q after %q", next, tag)
	}
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout("7s"), "If-Match: "+tag), 412,
		"stale-revision", tag[1:4])
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout("7s"), "If-None-Match: *"), 412, "exists")
	a.want(a.do("DELETE", "/meshes/default/meshtimeouts/t1", "", "If-Match: "+tag), 412)
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t2", strings.Replace(timeout("7s"), "t1", "t2", 1), "If-Match: *"),
		412)
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1?dryRun=true", timeout("7s")), 200, `"dryRun":true`, `"changed"`)
	a.want(a.do("GET", "/meshes/default/meshtimeouts/t1", ""), 200, `"6s"`)

	a.want(a.do("DELETE", "/meshes/default", ""), 409, "MeshTimeout/default/t1 (api)")
	a.want(a.do("DELETE", "/meshes/default/meshtimeouts/t1?dryRun=true", ""), 200, `"deleted"`)
	a.want(a.do("DELETE", "/meshes/default/meshtimeouts/t1", ""), 200, `"deleted"`)
	a.want(a.do("DELETE", "/meshes/default/meshtimeouts/t1", ""), 404)
	a.want(a.do("DELETE", "/meshes/default", ""), 200)
	a.want(a.do("GET", "/meshes/default/meshtimeouts", ""), 404, `mesh \"default\" does not exist`)
}

func TestBodies(t *testing.T) {
	a := start(t, func(o *httpapi.Options) { o.Limits.Body = 4096 })
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc)
	const at = "/meshes/default/meshtimeouts/t1"
	a.want(a.do("PUT", at, ""), 400, "empty")
	a.want(a.do("PUT", at, "a: [b"), 400, "invalid_parameters")
	a.want(a.do("PUT", at, strings.Repeat("#", 5000)), 413, "4096")
	a.want(a.do("PUT", at, "# nothing\n"), 400, "0 documents")
	a.want(a.do("PUT", at, timeout("5s")+"\n---\n"+timeout("6s")), 400, "2 documents", "/v1/apply")
	a.want(a.do("PUT", "/meshes/other/meshtimeouts/t9", timeout("5s")), 400, `"field":"mesh"`, `"field":"name"`)
	a.want(a.do("PUT", "/meshes/default/dataplanes/t1", timeout("5s")), 400, `"field":"type"`)
	a.want(a.do("PUT", at,
		`{"type":"MeshTimeout","mesh":"default","name":"t1","spec":{"targetRef":{"kind":"Nope"},"tow":[]}}`),
		400, `"field":"spec.targetRef.kind"`, `"field":"spec.tow"`)
	// YAML, and the Kubernetes format.
	a.want(a.do("PUT", "/meshes/default/dataplanes/web", web), 201)
	a.want(a.do("PUT", at,
		"apiVersion: kuma.io/v1alpha1\nkind: MeshTimeout\nmetadata: {name: t1, labels: {kuma.io/mesh: default}}\n"+
			"spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 5s}}]}\n"), 201)
	a.want(a.do("GET", at, ""), 200, `"type":"MeshTimeout"`)
}
