package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// other is another node of the tests.
var other = engine.Origin{Node: engine.NodeID{9, 9, 9}, Name: "there"}

// remote returns a version that the other node creates after a parent, which may be nil. An empty
// text deletes.
func remote(t testing.TB, at time.Time, parent *engine.Record, name, text string) *engine.Record {
	t.Helper()
	p := engine.Put{Key: engine.Key(key(name)), Delete: text == "", Author: "bob"}
	if text != "" {
		b, err := encode(res(name, text))
		if err != nil {
			t.Fatal(err)
		}
		p.Body, p.MediaType = b, "application/json"
	}
	v, err := engine.Successor(at, parent, p, other)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// merge merges versions of other nodes.
func merge(t testing.TB, s *store.Store, versions ...*engine.Record) {
	t.Helper()
	b := store.Batch{Source: store.Source{Kind: store.SourceGossip}}
	for _, v := range versions {
		b.Ops = append(b.Ops, s.Merge(v))
	}
	if _, err := s.Apply(b); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}

// versions returns the versions of a store as text.
func versions(s *store.Store) string {
	var out []string
	for _, v := range s.Versions() {
		what := "deleted"
		if !v.Deleted {
			r, err := decode(v.Body)
			if what = "unreadable"; err == nil {
				what = text(r)
			}
		}
		out = append(out, fmt.Sprintf("%s=%s by %s", v.Key.Name, what, v.Origin))
	}
	return strings.Join(out, "\n")
}

// TestVersions checks that each operators' write has a version, that a deletion leaves a tombstone,
// and that both survive a restart.
func TestVersions(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, api, "a", "1")
	first := s.Version(key("a"))
	mustPut(t, s, api, "a", "2")
	second := s.Version(key("a"))
	if !first.Version().Less(second.Version()) || len(second.Lineage) != 1 {
		t.Errorf("%s does not follow %s", second.ID(), first.ID())
	}
	mustPut(t, s, api, "b", "1")
	mustDel(t, s, api, "b")
	mustPut(t, s, fileA, "f", "1")
	const all = "a=2 by here\nb=deleted by here"
	want(t, "versions", versions(s), all)
	before := s.Versions()
	s = reopen(t, s, path)
	want(t, "versions", versions(s), all)
	for i, v := range s.Versions() {
		if v.ID() != before[i].ID() || v.Author != "t" {
			t.Errorf("%s became %s of %q", before[i].ID(), v.ID(), v.Author)
		}
	}
	want(t, "contents", contents(s), "a=2@2 api\nf=1@5 file:/etc/a.yaml")
	mustPut(t, s, api, "b", "2")
	if v := s.Version(key("b")); !before[1].Version().Less(v.Version()) || len(v.Lineage) != 2 {
		t.Errorf("%s does not follow the tombstone", v.ID())
	}
}

// TestMerge checks that the greater version wins in any order, and after a restart.
func TestMerge(t *testing.T) {
	at := time.Now().Add(time.Second)
	v1 := remote(t, at, nil, "a", "1")
	v2 := remote(t, at, v1, "a", "2")
	gone := remote(t, at, v2, "a", "")
	for _, order := range [][]*engine.Record{{v1, v2, gone}, {gone, v2, v1}, {v2, gone, v1}, {gone}, {v1, gone, gone}} {
		path := tempPath(t)
		s := open(t, path)
		mustPut(t, s, api, "a", "0")
		for _, v := range order {
			merge(t, s, v)
		}
		for range 2 {
			want(t, "versions", versions(s), "a=deleted by there")
			want(t, "contents", contents(s), "")
			s = reopen(t, s, path)
		}
	}
	path := tempPath(t)
	s := open(t, path)
	merge(t, s, v2, v1)
	want(t, "contents", contents(s), "a=2@1 gossip:there")
	want(t, "history", revisions(s, "a"), "1:2")
	s = reopen(t, s, path)
	want(t, "contents", contents(s), "a=2@1 gossip:there")
}

// TestShadow checks that a resource of the node shadows a version until it is deleted, with a
// restart at every point.
func TestShadow(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		path := tempPath(t)
		s := open(t, path)
		step := func(contents string, waiting int) {
			t.Helper()
			if restarts {
				s = reopen(t, s, path)
			}
			want(t, "contents", withoutRevisions(s), contents)
			want(t, "waiting", len(s.Waiting()), waiting)
		}
		v := remote(t, time.Now(), nil, "a", "1")
		merge(t, s, v)
		step("a=1 gossip:there", 0)
		mustPut(t, s, fileA, "a", "file")
		step("a=file file:/etc/a.yaml", 1)
		v = remote(t, time.Now(), v, "a", "2")
		merge(t, s, v)
		step("a=file file:/etc/a.yaml", 1)
		mustDel(t, s, fileA, "a")
		step("a=2 gossip:there", 0)
		mustPut(t, s, fileA, "a", "file")
		step("a=file file:/etc/a.yaml", 1)
		merge(t, s, remote(t, time.Now(), v, "a", ""))
		step("a=file file:/etc/a.yaml", 0)
		mustDel(t, s, fileA, "a")
		step("", 0)
	}
}

func withoutRevisions(s *store.Store) string {
	var out []string
	for _, r := range s.Snapshot().Records() {
		out = append(out, fmt.Sprintf("%s=%s %s", r.Name, text(r.Resource), r.Source))
	}
	return strings.Join(out, "\n")
}

// TestUndecodableVersion checks that the last readable content stays in force, and that a version
// comes into force when the agent can decode it.
func TestUndecodableVersion(t *testing.T) {
	path := tempPath(t)
	o := options(path)
	fails := true
	o.Decode = func(b []byte) (*resource.Resource, error) {
		r, err := decode(b)
		if err == nil && fails && strings.HasPrefix(text(r), "new") {
			return nil, errors.New("unknown field")
		}
		return r, err
	}
	s := openWith(t, o)
	v := remote(t, time.Now(), nil, "a", "1")
	merge(t, s, v)
	merge(t, s, remote(t, time.Now(), v, "a", "new"))
	for range 2 {
		want(t, "contents", withoutRevisions(s), "a=1 gossip:there")
		want(t, "versions", versions(s), "a=new by there")
		want(t, "waiting", s.Waiting()[key("a")], "this agent version cannot decode it: unknown field")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openWith(t, o)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fails = false
	s = openWith(t, o)
	want(t, "contents", withoutRevisions(s), "a=new gossip:there")
	want(t, "waiting", len(s.Waiting()), 0)
}

// TestDrop removes versions without a tombstone.
func TestDrop(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	merge(t, s, remote(t, time.Now(), nil, "a", "1"), remote(t, time.Now(), nil, "b", ""))
	_, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceGossip}, Ops: []store.Op{
		{Delete: key("a"), Drop: true}, {Delete: key("b"), Drop: true}, {Delete: key("c"), Drop: true}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		want(t, "versions", versions(s), "")
		want(t, "contents", contents(s), "")
		s = reopen(t, s, path)
	}
}

// TestRenew gives new versions to the old resources of this node only.
func TestRenew(t *testing.T) {
	path := tempPath(t)
	o := options(path)
	now := time.Now().Add(-time.Hour)
	o.Now = func() time.Time { return now }
	s := openWith(t, o)
	mustPut(t, s, api, "old", "1")
	mustPut(t, s, api, "gone", "1")
	mustDel(t, s, api, "gone")
	merge(t, s, remote(t, now, nil, "foreign", "1"))
	now = now.Add(time.Hour)
	mustPut(t, s, api, "young", "1")
	before := s.Versions()
	if err := s.Renew(now.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for i, v := range s.Versions() {
			if renewed := v.ID() != before[i].ID(); renewed != (v.Key.Name == "old") {
				t.Errorf("%s: renewed %t", v.Key, renewed)
			}
		}
		want(t, "contents", contents(s), "foreign=1@4 gossip:there\nold=1@1 api\nyoung=1@5 api")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openWith(t, o)
	}
}

// TestPoolState checks that other values of the pool survive restarts, and that a damaged one is
// reported and does not affect others.
func TestPoolState(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, fileA, "f", "1")
	ops := []engine.Op{{Bucket: "meta", Key: "epoch", Value: []byte("7")},
		{Bucket: "roster", Key: "\x00\x01", Value: []byte("x")}, {Bucket: "roster", Key: "b", Value: []byte("y")}}
	if err := s.WritePoolState(ops); err != nil {
		t.Fatal(err)
	}
	if err := s.WritePoolState([]engine.Op{{Bucket: "roster", Key: "b"}}); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s, path)
	same := func(a, b engine.Op) bool {
		return a.Bucket == b.Bucket && a.Key == b.Key && string(a.Value) == string(b.Value)
	}
	if got := s.TakePoolState(); !slices.EqualFunc(got, ops[:2], same) {
		t.Fatalf("state %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("state")).Put([]byte("roster\x00\x00\x01"), []byte("spoiled"))
	})
	s = open(t, path)
	if got := s.TakePoolState(); !slices.EqualFunc(got, ops[:1], same) {
		t.Fatalf("state %v", got)
	}
	want(t, "quarantined", len(s.Health().Quarantined), 1)
}

// TestDiff checks the difference of snapshots.
func TestDiff(t *testing.T) {
	s := memory(t)
	var at *store.Snapshot
	diff := func() string {
		var out []string
		for _, k := range s.Snapshot().Diff(at) {
			out = append(out, k.Name)
		}
		slices.Sort(out)
		at = s.Snapshot()
		return strings.Join(out, " ")
	}
	for i := range 200 {
		mustPut(t, s, fileA, fmt.Sprint("n", i), "1")
	}
	want(t, "first", len(strings.Fields(diff())), 200)
	want(t, "none", diff(), "")
	mustPut(t, s, fileA, "n7", "2")
	mustDel(t, s, fileA, "n8")
	mustPut(t, s, fileA, "x", "1")
	want(t, "changes", diff(), "n7 n8 x")
}
