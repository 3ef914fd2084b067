package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

func TestApply(t *testing.T) {
	a := start(t)
	stream := timeout("5s") + "\n---\n" + meshDoc + "\n---\n" + web
	a.want(a.do("POST", "/v1/apply?dryRun=true", stream), 200, `"dryRun":true`, `"name":"t1","action":"created"`)
	if n := a.store.Snapshot().Len(); n != 0 {
		t.Fatalf("a dry run stored %d resources", n)
	}
	got := a.do("POST", "/v1/apply", stream)
	a.want(got, 200)
	var w api.Written
	if err := json.Unmarshal([]byte(got.body), &w); err != nil {
		t.Fatal(err)
	}
	if len(w.Changes) != 3 || w.Changes[0].Type != "MeshTimeout" || w.Changes[2].Revision != 3 {
		t.Errorf("changes %+v", w.Changes)
	}
	a.want(a.do("POST", "/v1/apply", stream), 200, `"unchanged"`)

	// One bad document keeps all from being stored, and every fault is named.
	bad := strings.Replace(timeout("9s"), "t1", "t9", 1) +
		"\n---\n{type: Mesh, name: second, colour: red}\n---\n{type: Mesh, name: UPPER}\n"
	a.want(a.do("POST", "/v1/apply", bad), 400, `"field":"colour"`, `"field":"name"`, "document 2 (Mesh/second)",
		"document 3")
	a.want(a.do("POST", "/v1/apply", timeout("9s")+"\n---\n"+timeout("8s")), 400,
		"MeshTimeout/default/t1 is in the stream twice")
	a.want(a.do("POST", "/v1/apply", strings.Replace(timeout("9s"), "default", "other", 1)), 404, `mesh \"other\"`,
		"create it first")
	a.want(a.do("POST", "/v1/apply", "# nothing"), 400, "no document")
	a.want(a.do("POST", "/v1/apply?dryRun=perhaps", meshDoc), 400, `"field":"dryRun"`)
	a.want(a.do("POST", "/v1/apply", stream, `If-Match: "1"`), 400, "require one resource")
	a.want(a.do("POST", "/v1/apply", meshDoc, "If-None-Match: *"), 412)
	if r := a.store.Snapshot().Revision(); r != 3 {
		t.Errorf("revision %d after refused writes, want 3", r)
	}
}

func TestOwnership(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceFile, Detail: "/etc/nearside/resources/a.yaml"}, meshDoc)
	a.put(store.Source{Kind: store.SourceEnvoy, Detail: "default.web"}, web)
	a.want(a.do("PUT", "/meshes/default", `{"type":"Mesh","name":"default","routing":{"zoneEgress":true}}`), 409,
		"owned-elsewhere", "file:/etc/nearside/resources/a.yaml", "edit /etc/nearside/resources/a.yaml instead",
		`"field":"Mesh/default"`)
	a.want(a.do("PUT", "/meshes/default?dryRun=true", meshDoc), 409)
	a.want(a.do("DELETE", "/meshes/default/dataplanes/web", ""), 409, "envoy:default.web")
	a.want(a.do("POST", "/v1/apply", meshDoc+"\n---\n"+web), 409, `"field":"Mesh/default"`,
		`"field":"Dataplane/default/web"`)
	a.want(a.do("POST", "/v1/rollback", `{"type":"Mesh","name":"default","revision":1}`), 409)
}

func TestHistoryAndRollback(t *testing.T) {
	a := start(t)
	const at, hist = "/meshes/default/meshtimeouts/t1", "/v1/history/meshtimeouts/default/t1"
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201) // revision 1
	a.want(a.do("GET", hist, ""), 404)
	a.want(a.do("PUT", at, timeout("5s")), 201) // 2
	a.want(a.do("PUT", at, timeout("6s")), 200) // 3
	a.want(a.do("DELETE", at, ""), 200)         // 4
	got := a.do("GET", hist, "")
	a.want(got, 200)
	var h api.History
	if err := json.Unmarshal([]byte(got.body), &h); err != nil {
		t.Fatal(err)
	}
	if len(h.Items) != 3 || h.Items[0].Revision != 2 || !strings.Contains(string(h.Items[0].Resource), "5s") ||
		h.Items[0].Action+h.Items[1].Action+h.Items[2].Action != "createdchangeddeleted" || h.Items[2].Resource != nil {
		t.Errorf("history %+v", h)
	}
	a.want(a.do("GET", "/v1/history/meshes/default", ""), 200, `"revision":1`)
	a.want(a.do("GET", "/v1/history/meshtimeouts/t1", ""), 404, "belongs to a mesh")

	roll := func(f string, args ...any) answer { return a.do("POST", "/v1/rollback", fmt.Sprintf(f, args...)) }
	a.want(roll(`{"type":"mt","mesh":"default","name":"t1","revision":4}`), 400, "is the deletion of")
	a.want(roll(`{"type":"mt","mesh":"default","name":"t1","revision":9}`), 400, "its revisions are: 2 3")
	a.want(roll(`{"type":"mt","mesh":"default","name":"t1","revision":2,"dryRun":true}`), 200, `"created"`)
	a.want(a.do("GET", at, ""), 404)
	a.want(roll(`{"type":"mt","mesh":"default","name":"t1","revision":2}`), 200, `"revision":5`)
	a.want(a.do("GET", at, ""), 200, `"5s"`)
	a.want(roll(`{"type":"mt","mesh":"default","name":"t1","revision":3}`), 200, `"changed","revision":6`)
	for body, piece := range map[string]string{
		`{"type":"nope","name":"x","revision":1}`:                    `"field":"type"`,
		`{"type":"mt","name":"t1","revision":1}`:                     `"field":"mesh"`,
		`{"type":"mt","mesh":"default","revision":1}`:                `"field":"name"`,
		`{"type":"mt","colour":1}`:                                   "colour",
		`{"type":"mt","mesh":"default","name":"t1","revision":1} {}`: "more than one",
		`{`: "not the expected JSON document",
		``:  "empty",
	} {
		a.want(roll("%s", body), 400, piece)
	}
	a.want(roll(`{"type":"mt","mesh":"default","name":"nope","revision":1}`), 404)
}

func TestWritesThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	reg := registry(t)
	s, err := store.Open(store.Options{Path: filepath.Join(dir, "none", "state.db"), Encode: resource.Marshal,
		Decode: func(b []byte) (*resource.Resource, error) {
			rs, faults := reg.Decode("", b)
			if len(faults) > 0 || len(rs) != 1 {
				return nil, faults.Err()
			}
			return rs[0], nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	a := start(t, func(o *httpapi.Options) { o.Store = s })
	a.want(a.do("PUT", "/meshes/default", meshDoc), 507, "insufficient-storage", "state.db")
	a.want(a.do("GET", "/meshes/default", ""), 404)
	a.want(a.do("GET", "/v1/status", ""), 200, `"persistent":false`, `"error":"`)
	if err := os.MkdirAll(filepath.Join(dir, "none"), 0o700); err != nil {
		t.Fatal(err)
	}
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := a.do("PUT", "/meshes/second", `{"type":"Mesh","name":"second"}`); got.status != 503 ||
		!strings.Contains(got.body, "shutting down") {
		t.Errorf("a write to a closed store: %+v", got)
	}
}

// Of writers that all change from the same revision, one wins.
func TestConcurrentWriters(t *testing.T) {
	a := start(t)
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout("1s")), 201)
	tag := a.do("GET", "/meshes/default/meshtimeouts/t1", "").header.Get("ETag")
	var wg sync.WaitGroup
	status := make(chan int, 20)
	for i := range cap(status) {
		wg.Go(func() {
			status <- a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout(fmt.Sprintf("%ds", i+2)), "If-Match: "+tag).status
		})
	}
	wg.Wait()
	close(status)
	count := map[int]int{}
	for s := range status {
		count[s]++
	}
	if count[http.StatusOK] != 1 || count[http.StatusPreconditionFailed] != 19 {
		t.Errorf("statuses %v", count)
	}
}

// TestInertKindsAreNamed writes a policy that nothing acts on: the answer and the status say so,
// and a write that changes nothing does not.
func TestInertKindsAreNamed(t *testing.T) {
	a := start(t, func(o *httpapi.Options) {
		ds := kinds.All()
		for i := range ds {
			ds[i].Inert = ds[i].Kind == "MeshTimeout"
		}
		var err error
		if o.Registry, err = resource.NewRegistry(ds...); err != nil {
			t.Fatal(err)
		}
	})
	doc := fmt.Sprintf(timeoutUp, "1s")
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201, `"warnings":[]`)
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", doc), 201,
		"MeshTimeout is stored and validated, but this version does not apply it")
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", doc), 200, `"warnings":[]`)
	a.want(a.do("GET", "/v1/status", ""), 200, `"inert"`)
}
