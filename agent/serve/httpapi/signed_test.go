package httpapi_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/draft"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// keyOf returns a key that depends only on a name.
func keyOf(name string) sign.Signer {
	var seed [ed25519.SeedSize]byte
	copy(seed[:], name)
	return sign.Key(ed25519.NewKeyFromSeed(seed[:]))
}

// here is the node of the tests.
var here = engine.Origin{Node: engine.NodeID{1, 2, 3}, Name: "n1", Cluster: "c1"}

// onDisk returns options with a store on disk, whose policies are records of the pool.
func onDisk(t testing.TB, path string) func(*httpapi.Options) {
	r := registry(t)
	st, err := store.Open(store.Options{Path: path, Encode: resource.Marshal, Decode: r.DecodeOne, Origin: here,
		Shared: func(kind string) bool { return kind != "Dataplane" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return func(o *httpapi.Options) { o.Store = st }
}

// startSigned starts a server that can store signed records, with a mesh.
func startSigned(t testing.TB, change ...func(*httpapi.Options)) *testAPI {
	t.Helper()
	a := start(t, append([]func(*httpapi.Options){onDisk(t, filepath.Join(t.TempDir(), "db"))}, change...)...)
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
	return a
}

func (a *testAPI) client() *client.Client { return client.New(a.socket, 0) }

// putOf returns the change that stores a document.
func putOf(t testing.TB, doc string) engine.Put {
	t.Helper()
	rs, faults := registry(t).Decode("", []byte(doc))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	body, err := resource.Marshal(rs[0])
	if err != nil {
		t.Fatal(err)
	}
	return engine.Put{Key: engine.Key(rs[0].Key), MediaType: store.MediaType, Body: body, Author: "alice"}
}

// post sends records.
func (a *testAPI) post(headers []string, list ...*engine.Record) answer {
	a.t.Helper()
	q := api.SignedRecords{}
	for _, r := range list {
		q.Records = append(q.Records, base64.StdEncoding.EncodeToString(r.Encoded()))
	}
	b, err := json.Marshal(q)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.do("POST", "/v1/records", string(b), headers...)
}

// sealed makes a version.
func sealed(t testing.TB, d draft.Draft, p engine.Put, key sign.Signer, of engine.Origin) *engine.Record {
	t.Helper()
	of.Signer = key
	r, err := d.Seal(p, of)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (a *testAPI) draft(k engine.Key) draft.Draft {
	d, _, err := a.store.Drafts([]resource.Key{resource.Key(k)})
	if err != nil {
		a.t.Fatal(err)
	}
	return d[0].Draft
}

// TestSignedWrite stores, changes, and deletes a signed resource, and reads it after a restart.
func TestSignedWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	a := start(t, onDisk(t, path))
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
	key, p := keyOf("alice"), putOf(t, timeout("5s"))
	w, err := a.client().WriteSigned(t.Context(), key, p)
	if err != nil || w.Changes[0].Action != api.ActionCreated || w.Changes[0].Revision == 0 {
		t.Fatalf("%+v, %v", w, err)
	}
	if w, err = a.client().WriteSigned(t.Context(), key, p); err != nil || w.Changes[0].Action != api.ActionUnchanged {
		t.Fatalf("the same content: %+v, %v", w, err)
	}
	if w, err = a.client().WriteSigned(t.Context(), keyOf("bob"), p); err != nil ||
		w.Changes[0].Action != api.ActionChanged {
		t.Fatalf("another key: %+v, %v", w, err)
	}
	k := resource.Key(p.Key)
	v := a.store.Version(k)
	if v.Signer() != sign.Fingerprint(keyOf("bob").Public()) || string(v.Body) != string(p.Body) || len(v.Lineage) != 1 {
		t.Errorf("the version %+v", v)
	}
	if err := a.store.Close(); err != nil {
		t.Fatal(err)
	}
	b := start(t, onDisk(t, path))
	if got := b.store.Version(k); got.ID() != v.ID() || got.Signer() != v.Signer() {
		t.Errorf("after a restart: %+v, want %+v", got, v)
	}
	w, err = b.client().WriteSigned(t.Context(), key, engine.Put{Key: p.Key, Delete: true})
	if err != nil || w.Changes[0].Action != api.ActionDeleted {
		t.Fatalf("delete: %+v, %v", w, err)
	}
	b.want(b.do("GET", "/meshes/default/meshtimeouts/t1", ""), 404)
	if got := b.store.Version(k); !got.Deleted || got.Signer() != sign.Fingerprint(key.Public()) {
		t.Errorf("the tombstone %+v", got)
	}
}

// TestSignedRefused checks each reason to refuse a signed record, and that nothing is stored.
func TestSignedRefused(t *testing.T) {
	a := startSigned(t)
	key, p := keyOf("alice"), putOf(t, timeout("5s"))
	at := func(ago time.Duration, parent *engine.Record) draft.Draft {
		d, err := draft.Next(time.Now().Add(-ago), 0, parent)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	seal := func(d draft.Draft, p engine.Put, of engine.Origin) *engine.Record { return sealed(t, d, p, key, of) }
	now := a.draft(p.Key)
	wrong := p
	wrong.Key.Name = "t2"
	mark := strings.Replace(string(p.Body), "5s", "6s", 1)
	forged := seal(now, p, here)
	changed, err := engine.DecodeRecord([]byte(strings.Replace(string(forged.Encoded()), string(p.Body), mark, 1)))
	if err != nil {
		t.Fatal(err)
	}
	loose := p
	loose.Body = []byte(strings.Replace(string(p.Body), `"spec"`, `"colour":"red","spec"`, 1))
	yaml := p
	yaml.MediaType = "application/yaml"
	dataplane := putOf(t, web)
	other, cluster := here, here
	other.Node[0]++
	cluster.Cluster = "c2"
	before := a.store.Snapshot().Revision()
	for _, c := range []struct {
		name   string
		r      *engine.Record
		status int
		want   string
	}{
		{"of last month", seal(at(30*24*time.Hour, nil), p, here), 409, "is dated"},
		{"a minute ago", seal(at(time.Minute, nil), p, here), 409, "is dated"},
		{"in the future", seal(at(-time.Minute, nil), p, here), 409, "is dated"},
		{"of another parent", seal(at(0, forged), p, here), 409, "changed in the meantime"},
		{"of another era", seal(draft.Draft{HLC: now.HLC | 1<<60}, p, here), 409, "of era 4"},
		{"for another node", seal(now, p, other), 409, "was made for the node"},
		{"of another cluster", seal(now, p, cluster), 503, `of the cluster`},
		{"changed after the signature", changed, 400, "records[0]"},
		{"without a signature", sealed(t, now, p, nil, here), 400, "has no signature"},
		{"for another resource", seal(now, wrong, here), 400, "contains MeshTimeout/default/t1"},
		{"with an unknown field", seal(now, loose, here), 400, "colour"},
		{"in YAML", seal(now, yaml, here), 400, "media type"},
		{"of a node", seal(now, dataplane, here), 400, "belongs to a node"},
	} {
		got := a.post(nil, c.r)
		if got.status != c.status || !strings.Contains(got.body, c.want) {
			t.Errorf("%s: status %d, want %d with %q: %s", c.name, got.status, c.status, c.want, got.body)
		}
	}
	r := seal(now, p, here)
	a.want(a.post(nil, r, r), 400, "twice")
	a.want(a.post(nil), 400, "has 0 entries")
	a.want(a.post(nil, r, sealed(t, a.draft(engine.Key{Kind: "Mesh", Name: "default"}),
		engine.Put{Key: engine.Key{Kind: "Mesh", Name: "default"}, Delete: true}, key, here)), 400, "one deletion")
	a.want(a.do("POST", "/v1/records", `{"records":["`+strings.Repeat("AAAA", 30_000)+`"]}`), 400, "at most 65536")
	if got := a.store.Snapshot().Revision(); got != before {
		t.Errorf("revision %d after refused writes, want %d", got, before)
	}
	a.want(a.post(nil, r), 200, `"created"`)
	a.want(a.post(nil, r), 409, "changed in the meantime")
}

// TestSignedBatch stores 1,000 signed resources in one step.
func TestSignedBatch(t *testing.T) {
	a := startSigned(t)
	var puts []engine.Put
	for i := range 1000 {
		puts = append(puts, putOf(t, strings.Replace(timeout("5s"), `"t1"`, fmt.Sprintf(`"t%d"`, i), 1)))
	}
	w, err := a.client().WriteSigned(t.Context(), keyOf("alice"), puts...)
	if err != nil || len(w.Changes) != 1000 || w.Changes[999].Action != api.ActionCreated {
		t.Fatal(err)
	}
	if n := a.store.Snapshot().Len(); n != 1001 {
		t.Errorf("%d resources", n)
	}
}

// TestSignedConcurrently checks that no write of several signers is lost or counted twice.
func TestSignedConcurrently(t *testing.T) {
	a := startSigned(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored := 0
	for i := range 8 {
		wg.Go(func() {
			p := putOf(t, timeout(fmt.Sprint(i+1)+"s"))
			_, err := a.client().WriteSigned(t.Context(), keyOf(fmt.Sprint("key", i)), p)
			var e *api.Error
			switch {
			case err == nil:
				mu.Lock()
				stored++
				mu.Unlock()
			case !errors.As(err, &e) || e.Type != api.ProblemStale:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	k := resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: "t1"}
	if n := len(a.store.History(k)); n != stored || stored == 0 {
		t.Errorf("%d revisions of %d acknowledged writes", n, stored)
	}
}

// TestReservedRecords checks that records of trust are stored, need the pseudo-kind Agent, and are
// no resources.
func TestReservedRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	a := start(t, onDisk(t, path))
	key := keyOf("root")
	file := engine.Put{Key: engine.Key{Kind: store.KindTrustFile, Name: "trust"}, MediaType: "application/yaml",
		Body: []byte("version: 1")}
	node := engine.Put{Key: engine.Key{Kind: store.KindNodeEnrollment, Name: "0123"}, MediaType: "application/yaml",
		Body: []byte("node: n1")}
	w, err := a.client().WriteSigned(t.Context(), key, file, node)
	if err != nil || len(w.Changes) != 2 || w.Changes[0].Action != api.ActionCreated {
		t.Fatalf("%+v, %v", w, err)
	}
	file.Body = []byte("version: 2")
	if w, err = a.client().WriteSigned(t.Context(), key, file); err != nil || w.Changes[0].Action != api.ActionChanged {
		t.Fatalf("%+v, %v", w, err)
	}
	if n := a.store.Snapshot().Len(); n != 0 {
		t.Errorf("%d resources", n)
	}
	a.want(a.do("POST", "/v1/apply", `{"type":"TrustFile","name":"trust"}`), 400)
	a.want(a.do("GET", "/trustfiles", ""), 404)
	if err := a.store.Close(); err != nil {
		t.Fatal(err)
	}
	b := start(t, onDisk(t, path))
	v := b.store.Version(resource.Key(file.Key))
	if v == nil || string(v.Body) != "version: 2" || v.Signer() != sign.Fingerprint(key.Public()) {
		t.Errorf("after a restart: %+v", v)
	}
	if h := b.store.Health(); len(h.Quarantined) > 0 || len(b.store.Waiting()) > 0 {
		t.Errorf("health %+v, waiting %v", h, b.store.Waiting())
	}
	if w, err = b.client().WriteSigned(t.Context(), key, engine.Put{Key: node.Key, Delete: true}); err != nil ||
		w.Changes[0].Action != api.ActionDeleted {
		t.Fatalf("%+v, %v", w, err)
	}
}
