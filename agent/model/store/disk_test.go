package store_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	bolt "go.etcd.io/bbolt"
)

func TestRestart(t *testing.T) {
	path := tempPath(t)
	o := options(path)
	o.Now = clock()
	s := openWith(t, o)
	for i := range 30 {
		mustPut(t, s, api, "a", fmt.Sprint(i))
	}
	mustPut(t, s, fileA, "b", "b")
	mustPut(t, s, envoy, "c", "c")
	mustPut(t, s, api, "d", "d")
	mustDel(t, s, api, "d")
	healthy(t, s)
	before, records := contents(s), s.Snapshot().Records()
	histories := revisions(s, "a") + "; " + revisions(s, "b") + "; " + revisions(s, "d")
	full := s.History(key("d"))

	s = reopen(t, s, path)
	healthy(t, s)
	want(t, "contents", contents(s), before)
	want(t, "revision", s.Snapshot().Revision(), 34)
	for i, r := range s.Snapshot().Records() {
		got, was := r, records[i]
		got.Resource, was.Resource = nil, nil
		want(t, "record "+r.Name, got, was)
	}
	want(t, "histories", revisions(s, "a")+"; "+revisions(s, "b")+"; "+revisions(s, "d"), histories)
	want(t, "length", len(s.History(key("a"))), store.HistoryLimit)
	h := s.History(key("d"))
	want(t, "deletion", h[1], full[1])

	// Owners, revisions, and unchanged content survive the restart.
	if _, err := put(s, api, "b", "x"); err == nil {
		t.Fatal("the owner is lost")
	}
	want(t, "unchanged", mustPut(t, s, fileA, "b", "b").Revision, 31)
	want(t, "next", mustPut(t, s, api, "d", "again").Revision, 35)
	want(t, "history", revisions(s, "d"), "33:d 34:- 35:again")
}

func TestRevisionsOfDeletedAreNotReused(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, api, "a", "a")
	mustDel(t, s, api, "a")
	s = reopen(t, s, path)
	want(t, "revision", s.Snapshot().Revision(), 2)
	want(t, "next", mustPut(t, s, api, "b", "b").Revision, 3)
}

func TestTombstonesOnDisk(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	tombstones(t, s)
	s = reopen(t, s, path)
	want(t, "oldest", len(s.History(key("n0000"))), 0)
	want(t, "first within the limit", len(s.History(key("n0010"))), 2)
	mustPut(t, s, envoy, "more", "x")
	mustDel(t, s, envoy, "more")
	mustPut(t, s, envoy, "other", "x")
	want(t, "oldest after the restart", len(s.History(key("n0010"))), 0)
	want(t, "second", len(s.History(key("n0011"))), 2)
}

func TestSecondStoreIsRefused(t *testing.T) {
	t.Parallel()
	path := tempPath(t)
	s := open(t, path)
	_, err := store.Open(options(path))
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "stop the other agent") {
		t.Fatal(err)
	}
	mustPut(t, s, api, "a", "a")
	s = reopen(t, s, path)
	want(t, "contents", contents(s), "a=a@1 api")
}

func TestNewerFormatIsRefused(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, api, "a", "a")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := writeFormat3(t, path); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(options(path))
	var newer *store.FormatError
	if !errors.As(err, &newer) || newer.Format != "3" || !strings.Contains(err.Error(), path) {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal("the file of a newer version was touched: ", err)
	}
}

// edit changes a state file with bbolt.
func edit(t testing.TB, path string, fn func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(fn), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func filled(t testing.TB, n int) string {
	t.Helper()
	path := tempPath(t)
	s := open(t, path)
	for i := range n {
		var ops []store.Op
		for j := range 4 {
			ops = append(ops, store.Op{Put: res(fmt.Sprintf("n%03d", j*n+i), strings.Repeat("text ", 20))})
		}
		if _, err := s.Apply(store.Batch{Source: api, Durable: true, Ops: ops}); err != nil {
			t.Fatal(err)
		}
	}
	mustPut(t, s, api, "a", "first")
	mustPut(t, s, api, "a", "second")
	mustPut(t, s, api, "b", "b")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDowngrade opens a file with a codec that lacks a kind, and then with one that has it.
func TestDowngrade(t *testing.T) {
	path := filled(t, 1)
	old := options(path)
	old.Decode = func(b []byte) (*resource.Resource, error) {
		r, err := decode(b)
		if err == nil && r.Name == "a" {
			return nil, errors.New("kind Note is not known")
		}
		return r, err
	}
	for range 2 {
		s := openWith(t, old)
		q := s.Health().Quarantined
		if len(q) != 1 || q[0].Key != "Note/default/a" || !strings.Contains(q[0].Reason, "kind Note is not known") {
			t.Fatalf("quarantined: %+v", q)
		}
		want(t, "others", s.Snapshot().Len(), 5)
		want(t, "history", len(s.History(key("a"))), 0)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, path)
	healthy(t, s)
	want(t, "history", revisions(s, "a"), "5:first 6:second")
	r, ok := s.Snapshot().Get(key("a"))
	if !ok || text(r.Resource) != "second" || r.Revision != 6 || r.Source != api {
		t.Fatalf("after the upgrade: %+v", r)
	}
}

func TestFileMovedAwayWhileOpen(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, api, "a", "a")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, api, "b", "b")
	before := contents(s)
	s = reopen(t, s, path)
	want(t, "contents", contents(s), before)
	want(t, "history", revisions(s, "a"), "1:a")
}
