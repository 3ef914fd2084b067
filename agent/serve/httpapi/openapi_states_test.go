package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

const levels = `{"levels":{"":"info"}}`

// silent is an Envoy that does not answer.
type silent struct{}

var errSilent = errors.New("the admin interface does not answer")

func (silent) ConfigDump(context.Context, bool) ([]byte, error) { return nil, errSilent }
func (silent) Stats(context.Context) ([]byte, error)            { return nil, errSilent }
func (silent) Clusters(context.Context) ([]byte, error)         { return nil, errSilent }
func (silent) Levels(context.Context, map[string]string) (map[string]string, error) {
	return nil, errSilent
}

// lists reports whether the operation lists a failure.
func (w *walker) lists(code, typ string) bool {
	r := w.op.Responses[code]
	return r != nil && slices.Contains(r.problems(), "/problems/"+typ)
}

// TestOpenAPIStates provokes the failures that depend on the state of the agent: an Envoy that does
// not answer, a mesh that cannot be computed, an audit log that cannot be written, and resources
// that cannot be read.
func TestOpenAPIStates(t *testing.T) {
	a := startRolesWith(t, func(o *httpapi.Options) {
		o.Envoy = func(*api.ProxyStatus) httpapi.Envoy { return silent{} }
		o.ProxiesOf = func(ref node.Ref) []api.ProxyStatus {
			return []api.ProxyStatus{{Type: ref.Type, Mesh: ref.Mesh, Name: ref.Name, Flavor: node.FlavorEnvoy, Streams: 1,
				State: api.StateUnknown, Types: []api.TypeStatus{}, Events: []api.Event{}}}
		}
	})
	a.put(store.Source{Kind: store.SourceAPI}, testMeshes+
		"\n---\n{type: ZoneIngress, name: out, networking: {address: 192.0.2.8, port: 10001}}")
	a.reconcile()
	walk(a, func(w *walker) {
		if w.lists("500", "envoy") {
			body := levels
			if w.op.OperationID == "drainProxy" {
				body = "{}"
			}
			w.expect(w.ask(fill(w.path), nil, body, as("ops")), 500, "envoy")
		}
	})

	a.last.Store(&status.Result{Revision: a.store.Snapshot().Revision(),
		Kept: map[string]string{"default": "no backend has the name ca-1"}})
	walk(a, func(w *walker) {
		if w.lists("503", "generation-failed") {
			w.expect(w.ask(fill(w.path), nil, `{"policy":{"type":"MeshTimeout","name":"web-1","dataplane":"web"}}`, as("ops")),
				503, "generation-failed")
		}
	})

	x := &auditor{profile: audit.ProfileDefault, refuse: errors.New("no space left on device")}
	full := startRolesWith(t, func(o *httpapi.Options) { o.Audit = x })
	full.put(store.Source{Kind: store.SourceAPI}, testMeshes)
	full.reconcile()
	for id, body := range map[string]string{
		"put": resourceAt("Dataplane", "web"), "putGlobal": `{"type":"Mesh","name":"default"}`,
		"apply": resourceAt("Dataplane", "web"), "delete": "", "deleteGlobal": "",
		"rollback": `{"type":"MeshTimeout","mesh":"default","name":"web-1","revision":6}`,
	} {
		walk(full, func(w *walker) {
			path := fill(w.path)
			if id == "putGlobal" {
				path = "/meshes/default"
			}
			if w.op.OperationID == id {
				w.expect(w.ask(path, nil, body, as("ops")), 503, "audit-log")
				if id == "rollback" {
					w.expect(w.ask(path, nil, body, as("ops"), `If-Match: "1-00000000"`), 412, "stale-revision")
					w.expect(w.ask(path, nil, body, as("ops"), `If-None-Match: *`), 412, "exists")
				}
			}
		})
	}
}

// TestOpenAPIDamaged asks for resources that cannot be read.
func TestOpenAPIDamaged(t *testing.T) {
	path, r := filepath.Join(t.TempDir(), "state.db"), registry(t)
	o := store.Options{Path: path, Encode: resource.Marshal, Decode: r.DecodeOne, AcceptDamage: true}
	s, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	(&testAPI{t: t, store: s}).put(store.Source{Kind: store.SourceAPI}, testMeshes+
		"\n---\n{type: ZoneIngress, name: out, networking: {address: 192.0.2.8, port: 10001}}")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o.Decode = func(b []byte) (*resource.Resource, error) {
		if bytes.Contains(b, []byte(`"Mesh"`)) || bytes.Contains(b, []byte(`"ZoneE`)) || bytes.Contains(b, []byte(`"ZoneI`)) {
			return nil, errors.New("not a resource")
		}
		return r.DecodeOne(b)
	}
	if s, err = store.Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	a := startRolesWith(t, func(o *httpapi.Options) { o.Store = s })
	a.last.Store(&status.Result{Revision: s.Snapshot().Revision(), Meshes: map[string]*generate.Mesh{"default": {}}})
	bodies := map[string]string{
		"put": resourceAt("Dataplane", "web"), "apply": resourceAt("Dataplane", "web"),
		"wait":              `{"type":"MeshTimeout","mesh":"default","name":"no-such"}`,
		"rollback":          `{"type":"MeshTimeout","mesh":"default","name":"no-such","revision":1}`,
		"explain":           `{"policy":{"type":"MeshTimeout","name":"no-such","dataplane":"web"}}`,
		"setLoggersOfProxy": levels, "setLoggersOfZoneEgress": levels, "setLoggersOfZoneIngress": levels,
	}
	walk(a, func(w *walker) {
		name := "no-such"
		switch id := w.op.OperationID; {
		case id == "records" || id == "restoreConflict" || id == "drainProxy": // the server has no pool and no drains
			return
		case !w.lists("409", "damaged"):
			return
		case strings.Contains(w.path, "zone") || !strings.Contains(w.path, "{mesh}"):
			name = "out"
		case id == "put":
			name = "web"
		}
		w.expect(w.ask(fill(w.path, "{name}", name), nil, bodies[w.op.OperationID], as("ops")), 409, "damaged")
	})
}

// resourceAt is a resource of the mesh default that is valid and new.
func resourceAt(kind, name string) string {
	return fmt.Sprintf(`{"type":%q,"mesh":"default","name":%q,"networking":{"address":"192.0.2.1","inbound":[{"port":81,`+
		`"tags":{"kuma.io/service":"web"}}]}}`, kind, name)
}
