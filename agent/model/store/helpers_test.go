package store_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// note is the kind that the tests use: a text.
type note struct{ Text string }

func (note) Validate(*resource.Validator) {}

type noteJSON struct{ Kind, Mesh, Name, Text string }

func encode(r *resource.Resource) ([]byte, error) {
	text := r.Spec.(note).Text
	if text == "cannot be encoded" {
		return nil, errors.New("as asked")
	}
	return json.Marshal(noteJSON{r.Kind, r.Mesh, r.Name, text})
}

func decode(b []byte) (*resource.Resource, error) {
	var n noteJSON
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, err
	}
	return seal(n), nil
}

func seal(n noteJSON) *resource.Resource {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(b)
	return &resource.Resource{Key: resource.Key{Kind: n.Kind, Mesh: n.Mesh, Name: n.Name}, Spec: note{n.Text},
		Digest: resource.Digest(sum[:16])}
}

// origin is the node of the tests.
var origin = engine.Origin{Node: engine.NodeID{1, 2, 3, 4, 5, 6, 7, 8, 9}, Name: "here"}

// shared makes all kinds records of the pool.
func shared(string) bool { return true }

func key(name string) resource.Key { return resource.Key{Kind: "Note", Mesh: "default", Name: name} }

func res(name, text string) *resource.Resource { return seal(noteJSON{"Note", "default", name, text}) }

func text(r *resource.Resource) string { return r.Spec.(note).Text }

var (
	api   = store.Source{Kind: store.SourceAPI}
	fileA = store.Source{Kind: store.SourceFile, Detail: "/etc/a.yaml"}
	fileB = store.Source{Kind: store.SourceFile, Detail: "/etc/b.yaml"}
	envoy = store.Source{Kind: store.SourceEnvoy, Detail: "default.web"}
)

func put(s *store.Store, src store.Source, name, text string) (store.Record, error) {
	return one(s.Apply(store.Batch{Source: src, Durable: src == api, Author: "t",
		Ops: []store.Op{{Put: res(name, text)}}}))
}

func del(s *store.Store, src store.Source, name string) (store.Record, error) {
	return one(s.Apply(store.Batch{Source: src, Durable: src == api, Author: "t", Ops: []store.Op{{Delete: key(name)}}}))
}

func one(rs []store.Record, err error) (store.Record, error) {
	if err != nil {
		return store.Record{}, err
	}
	if len(rs) != 1 {
		return store.Record{}, fmt.Errorf("%d records for one op", len(rs))
	}
	return rs[0], nil
}

func mustPut(t testing.TB, s *store.Store, src store.Source, name, text string) store.Record {
	t.Helper()
	r, err := put(s, src, name, text)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Flush() // Health has the error
	return r
}

func mustDel(t testing.TB, s *store.Store, src store.Source, name string) store.Record {
	t.Helper()
	r, err := del(s, src, name)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Flush() // Health has the error
	return r
}

// tempPath returns the path of a state file in a new directory.
func tempPath(t testing.TB) string { return filepath.Join(t.TempDir(), "state.db") }

func options(path string) store.Options {
	return store.Options{Path: path, Encode: encode, Decode: decode, Shared: shared, Origin: origin, AcceptDamage: true}
}

func open(t testing.TB, path string) *store.Store {
	t.Helper()
	return openWith(t, options(path))
}

func openWith(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func reopen(t testing.TB, s *store.Store, path string) *store.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, path)
}

// contents formats all records in order: "name=text@revision owner".
func contents(s *store.Store) string {
	var out []string
	for _, r := range s.Snapshot().Records() {
		out = append(out, fmt.Sprintf("%s=%s@%d %s", r.Name, text(r.Resource), r.Revision, r.Source))
	}
	return strings.Join(out, "\n")
}

// revisions formats a history: "revision:text", with "-" for a deletion.
func revisions(s *store.Store, name string) string {
	var out []string
	for _, r := range s.History(key(name)) {
		t := "-"
		if !r.Deleted {
			t = text(r.Resource)
		}
		out = append(out, fmt.Sprintf("%d:%s", r.Revision, t))
	}
	return strings.Join(out, " ")
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func healthy(t testing.TB, s *store.Store) {
	t.Helper()
	if h := s.Health(); !h.Persistent || h.Err != nil || h.Pending != 0 || h.SetAside != "" || len(h.Quarantined) != 0 {
		t.Fatalf("health: %+v", h)
	}
}

// logged returns a logger and its output.
func logged() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

// clock returns a clock that advances one second per call.
func clock() func() time.Time {
	now := time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("CET", 3600))
	return func() time.Time { now = now.Add(time.Second); return now }
}
