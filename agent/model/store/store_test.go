package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

func memory(t testing.TB) *store.Store { return openWith(t, store.Options{}) }

func TestApply(t *testing.T) {
	s := openWith(t, store.Options{Now: clock()})
	a := mustPut(t, s, api, "a", "one")
	want(t, "revision", a.Revision, 1)
	want(t, "created", a.Created, a.Modified)
	want(t, "zone", a.Created.Location(), time.UTC)

	before := s.Snapshot()
	b := mustPut(t, s, api, "a", "two")
	want(t, "revision", b.Revision, 2)
	want(t, "created", b.Created, a.Created)
	if !b.Modified.After(a.Modified) {
		t.Fatalf("modified %s, before %s", b.Modified, a.Modified)
	}
	if r, _ := before.Get(key("a")); text(r.Resource) != "one" || before.Revision() != 1 ||
		text(before.Set().Get(key("a"))) != "one" {
		t.Fatal("a snapshot changed after it was taken")
	}

	rs, err := s.Apply(store.Batch{Source: api, Durable: true, Author: "me", Ops: []store.Op{
		{Put: res("b", "b")}, {Put: res("a", "two")}, {Put: res("b", "bb")}, {Delete: key("a")}, {Put: res("a", "three")}}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rs {
		got = append(got, fmt.Sprintf("%s=%s@%d", r.Name, text(r.Resource), r.Revision))
	}
	want(t, "records", strings.Join(got, " "), "b=b@3 a=two@2 b=bb@4 a=two@5 a=three@6")
	want(t, "contents", contents(s), "a=three@6 api\nb=bb@4 api")
	want(t, "history", revisions(s, "a"), "1:one 2:two 5:- 6:three")
	if r := s.History(key("a"))[2]; !r.Deleted || r.Resource != nil || r.Author != "me" || r.Source != api {
		t.Fatalf("deletion in history: %+v", r)
	}
	if r, _ := s.Snapshot().Get(key("a")); !r.Created.Equal(r.Modified) {
		t.Fatal("a resource that was created anew keeps its old time of creation")
	}
}

func TestSameContentChangesNothing(t *testing.T) {
	s := open(t, tempPath(t))
	a := mustPut(t, s, api, "a", "one")
	persisted := s.Health().LastPersist
	ch, stop := s.Watch()
	defer stop()
	snap := s.Snapshot()
	b := mustPut(t, s, api, "a", "one")
	want(t, "record", b, a)
	want(t, "snapshot", s.Snapshot(), snap)
	want(t, "signals", len(ch), 0)
	want(t, "time of the last write", s.Health().LastPersist, persisted)
	want(t, "history", revisions(s, "a"), "1:one")
}

func TestConflicts(t *testing.T) {
	s := memory(t)
	mustPut(t, s, fileA, "a", "one")
	mustPut(t, s, api, "b", "one")
	mustPut(t, s, envoy, "c", "one")
	before := contents(s)
	all := func(src store.Source) error {
		_, err := s.Apply(store.Batch{Source: src, Durable: src == api, Ops: []store.Op{
			{Put: res("new", "x")}, {Put: res("a", "one")}, {Delete: key("b")}, {Put: res("c", "two")}}})
		return err
	}
	for _, c := range []struct {
		src  store.Source
		want []string
	}{
		{api, []string{"Note/default/a belongs to file:/etc/a.yaml and cannot be changed by api: edit /etc/a.yaml instead",
			"Note/default/c belongs to envoy:default.web and cannot be changed by api: stop the Envoy"}},
		{fileB, []string{"Note/default/b belongs to api and cannot be changed by file:/etc/b.yaml: delete it over the API",
			"Note/default/c belongs"}},
		{fileA, []string{"Note/default/b belongs", "Note/default/c belongs"}},
		{envoy, []string{"Note/default/a belongs to file:/etc/a.yaml and cannot be changed by envoy:default.web: " +
			"remove it from /etc/a.yaml", "Note/default/b belongs"}},
		{store.Source{Kind: store.SourceEnvoy, Detail: "other"}, []string{"a", "b", "c"}},
	} {
		err := all(c.src)
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) {
			t.Fatalf("%s: %v", c.src, err)
		}
		lines := strings.Split(err.Error(), "\n")
		want(t, c.src.String()+": conflicts", len(conflict.Conflicts), len(c.want))
		for i, w := range c.want {
			if !strings.Contains(lines[i], w) {
				t.Errorf("%s: %q lacks %q", c.src, lines[i], w)
			}
		}
	}
	want(t, "contents", contents(s), before)
	want(t, "revision", s.Snapshot().Revision(), 3)

	// After the owner has deleted a resource, any source may create it.
	mustDel(t, s, fileA, "a")
	want(t, "new owner", mustPut(t, s, api, "a", "two").Source, api)
	want(t, "by source", len(s.Snapshot().BySource(store.SourceAPI)), 2)
	want(t, "by source", len(s.Snapshot().BySource(store.SourceFile)), 0)
}

func TestFilesOfOneBatch(t *testing.T) {
	s := memory(t)
	files := store.Source{Kind: store.SourceFile}
	created := mustPut(t, s, fileA, "a", "one").Created
	rs, err := s.Apply(store.Batch{Source: files, Ops: []store.Op{
		{Put: res("a", "one"), Source: fileB}, {Put: res("b", "b"), Source: fileA}, {Put: res("c", "c"), Source: fileB}}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "contents", contents(s), "a=one@2 file:/etc/b.yaml\nb=b@3 file:/etc/a.yaml\nc=c@4 file:/etc/b.yaml")
	want(t, "created", rs[0].Created, created)
	want(t, "history", s.History(key("a"))[1].Source, fileB)
	_, err = s.Apply(store.Batch{Source: files, Ops: []store.Op{{Put: res("d", "d"), Source: api}}})
	if err == nil || !strings.Contains(err.Error(), "batch.Ops[0].Source") {
		t.Fatal(err)
	}
}

// TestMoveBetweenFiles swaps the resources of two files in one batch. A resource of another source
// in the batch rejects all of it.
func TestMoveBetweenFiles(t *testing.T) {
	s := memory(t)
	mustPut(t, s, fileA, "a", "one")
	mustPut(t, s, fileB, "b", "two")
	mustPut(t, s, api, "x", "theirs")
	swap := []store.Op{{Put: res("a", "one"), Source: fileB}, {Put: res("b", "two!"), Source: fileA}}
	files := store.Source{Kind: store.SourceFile}
	before := contents(s)
	_, err := s.Apply(store.Batch{Source: files, Ops: append(swap, store.Op{Put: res("x", "ours"), Source: fileB})})
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) {
		t.Fatalf("error %v", err)
	}
	want(t, "conflicts", len(conflict.Conflicts), 1)
	want(t, "conflict", conflict.Conflicts[0], store.Conflict{Key: key("x"), Owner: api, Wanted: fileB})
	want(t, "contents", contents(s), before)

	if _, err := s.Apply(store.Batch{Source: files, Ops: swap}); err != nil {
		t.Fatal(err)
	}
	want(t, "contents", contents(s), "a=one@4 file:/etc/b.yaml\nb=two!@5 file:/etc/a.yaml\nx=theirs@3 api")
	for _, n := range []string{"a", "b"} {
		for _, r := range s.History(key(n)) {
			if r.Deleted {
				t.Errorf("%s was deleted at revision %d on its way", n, r.Revision)
			}
		}
	}
	_, err = s.Apply(store.Batch{Source: api, Durable: true, Ops: []store.Op{{Delete: key("a")}}})
	if !errors.As(err, &conflict) {
		t.Errorf("the API deletes what a file has: %v", err)
	}
}

func TestIfRevision(t *testing.T) {
	s := memory(t)
	at := func(n uint64) *uint64 { return &n }
	apply := func(ops ...store.Op) error {
		_, err := s.Apply(store.Batch{Source: api, Durable: true, Ops: ops})
		return err
	}
	wantErr := func(err error, have, wanted uint64, words string) {
		t.Helper()
		var re *store.RevisionError
		if !errors.As(err, &re) || re.Have != have || re.Want != wanted || !strings.Contains(err.Error(), words) {
			t.Fatalf("error %v (%+v)", err, re)
		}
	}
	wantErr(apply(store.Op{Put: res("a", "x"), IfRevision: at(3)}), 0, 3, "does not exist, but revision 3")
	if err := apply(store.Op{Put: res("a", "x"), IfRevision: at(0)}); err != nil {
		t.Fatal(err)
	}
	wantErr(apply(store.Op{Put: res("a", "x"), IfRevision: at(0)}), 1, 0, "exists already, at revision 1")
	wantErr(apply(store.Op{Put: res("b", "x")}, store.Op{Put: res("a", "y"), IfRevision: at(7)}), 1, 7,
		"is at revision 1, not 7")
	wantErr(apply(store.Op{Delete: key("a"), IfRevision: at(7)}), 1, 7, "is at revision 1, not 7")
	if err := apply(store.Op{Put: res("a", "y"), IfRevision: at(1)},
		store.Op{Put: res("a", "z"), IfRevision: at(2)}); err != nil {
		t.Fatal(err)
	}
	if err := apply(store.Op{Delete: key("a"), IfRevision: at(3)}); err != nil {
		t.Fatal(err)
	}
	var nf *store.NotFoundError
	if err := apply(store.Op{Delete: key("a")}); !errors.As(err, &nf) || nf.Key != key("a") {
		t.Fatal(err)
	}
	want(t, "history", revisions(s, "a"), "1:x 2:y 3:z 4:-")
}

// TestDecidedOnOtherContent checks that a batch that was decided on a snapshot applies only to that
// content, durable or not. Changes during the write to disk do not matter.
func TestDecidedOnOtherContent(t *testing.T) {
	s, d, _ := slow(t)
	on := func(snap *store.Snapshot, name string, durable bool) error {
		_, err := s.Apply(store.Batch{Source: api, Durable: durable, On: snap, Ops: []store.Op{{Put: res(name, "x")}}})
		return err
	}
	for i, durable := range []bool{true, false} {
		before := s.Snapshot()
		if err := on(before, fmt.Sprint("a", i), durable); err != nil {
			t.Fatal(err)
		}
		if err := on(before, fmt.Sprint("b", i), durable); !errors.Is(err, store.ErrMoved) {
			t.Fatalf("durable %v: error %v", durable, err)
		}
	}
	release := d.stall()
	result, before := make(chan error), s.Snapshot()
	go func() { result <- on(before, "c", true) }()
	<-d.in
	if _, err := put(s, fileA, "f", "1"); err != nil {
		t.Fatal(err)
	}
	release(nil)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	want(t, "contents", contents(s), "a0=x@1 api\na1=x@2 api\nc=x@5 api\nf=1@4 file:/etc/a.yaml")
}

func TestMalformedBatches(t *testing.T) {
	s := open(t, tempPath(t))
	unsealed := res("a", "x")
	unsealed.Digest = resource.Digest{}
	for _, c := range []struct {
		b    store.Batch
		want string
	}{
		{store.Batch{Ops: []store.Op{{Put: res("a", "x")}}}, "batch.Source.Kind is empty"},
		{store.Batch{Source: api, Ops: []store.Op{{Put: res("a", "x")}, {}}}, "batch.Ops[1]: exactly one of Put and Delete"},
		{store.Batch{Source: api, Ops: []store.Op{{Put: res("a", "x"), Delete: key("a")}}}, "batch.Ops[0]: exactly one"},
		{store.Batch{Source: api, Ops: []store.Op{{Delete: resource.Key{Kind: "Note"}}}}, "lacks a kind or a name"},
		{store.Batch{Source: api, Ops: []store.Op{{Put: res("a\x00b", "x")}}}, "NUL"},
		{store.Batch{Source: api, Ops: []store.Op{{Put: res(strings.Repeat("a", 40000), "x")}}}, "at most 16384"},
		{store.Batch{Source: api, Ops: []store.Op{{Put: unsealed}}}, "seal it first"},
		{store.Batch{Source: api, Ops: []store.Op{{Put: res("b", "b")}, {Put: res("a", "cannot be encoded")}}},
			"encode Note/default/a: as asked"},
	} {
		if _, err := s.Apply(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	want(t, "contents", contents(s), "")
	want(t, "revision", s.Snapshot().Revision(), 0)
	if _, err := store.Open(store.Options{Path: "x"}); err == nil {
		t.Error("a path without a codec is taken")
	}
}

func TestWatchCoalesces(t *testing.T) {
	s := memory(t)
	a, stopA := s.Watch()
	b, stopB := s.Watch()
	defer stopB()
	want(t, "signals at first", len(a), 0)
	for i := range 5 {
		mustPut(t, s, api, "a", fmt.Sprint(i))
	}
	want(t, "signals", len(a), 1)
	<-a
	want(t, "signals when taken", len(a), 0)
	mustDel(t, s, api, "a")
	want(t, "signals", len(a), 1)
	want(t, "signals of the other", len(b), 1)
	<-a
	stopA()
	stopA()
	if _, err := del(s, api, "a"); err == nil {
		t.Fatal("deleted twice")
	}
	<-b
	want(t, "signals after a failed write", len(b), 0)
	mustPut(t, s, api, "a", "x")
	want(t, "signals when stopped", len(a), 0)
	want(t, "signals of the other", len(b), 1)
}

func TestSnapshotIsSortedAndShared(t *testing.T) {
	s := memory(t)
	for _, n := range []string{"c", "a", "b"} {
		mustPut(t, s, api, n, n)
	}
	snap := s.Snapshot()
	want(t, "order", contents(s), "a=a@2 api\nb=b@3 api\nc=c@1 api")
	want(t, "set", snap.Set(), snap.Set())
	want(t, "set size", snap.Set().Len(), snap.Len())
	if _, ok := snap.Get(key("d")); ok {
		t.Fatal("found what is not there")
	}
}

func TestHistoryInMemory(t *testing.T) {
	s := memory(t)
	for i := range 30 {
		mustPut(t, s, api, "a", fmt.Sprint(i))
	}
	h := s.History(key("a"))
	want(t, "length", len(h), store.HistoryLimit)
	want(t, "first", h[0].Revision, 11)
	want(t, "last", text(h[19].Resource), "29")
	want(t, "history of the unknown", len(s.History(key("z"))), 0)
	if h := s.Health(); h.Persistent || h.Err != nil || h.Pending != 0 {
		t.Fatalf("health: %+v", h)
	}
	tombstones(t, s)
}

// tombstones deletes more resources than the limit, and checks the remaining histories.
func tombstones(t *testing.T, s *store.Store) {
	t.Helper()
	mustPut(t, s, fileA, "kept", "x")
	mustDel(t, s, fileA, "kept")
	var puts, dels []store.Op
	for i := range store.TombstoneLimit + 10 {
		puts = append(puts, store.Op{Put: res(fmt.Sprintf("n%04d", i), "x")})
		dels = append(dels, store.Op{Delete: key(fmt.Sprintf("n%04d", i))})
	}
	for _, ops := range [][]store.Op{puts, dels} {
		if _, err := s.Apply(store.Batch{Source: envoy, Ops: ops}); err != nil {
			t.Fatal(err)
		}
	}
	mustPut(t, s, api, "next", "x") // the next commit drops them
	want(t, "oldest", len(s.History(key("n0000"))), 0)
	want(t, "last beyond the limit", len(s.History(key("n0009"))), 0)
	want(t, "first within the limit", len(s.History(key("n0010"))), 2)
	want(t, "of another source", len(s.History(key("kept"))), 2)
}

func TestConcurrentUse(t *testing.T) {
	s := open(t, tempPath(t))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			src := store.Source{Kind: store.SourceEnvoy, Detail: fmt.Sprint(w)}
			name := fmt.Sprint(w)
			ch, stop := s.Watch()
			defer stop()
			for i := range 25 {
				r, err := put(s, src, name, fmt.Sprint(i))
				if err != nil {
					t.Error(err)
					return
				}
				<-ch
				got, ok := s.Snapshot().Get(key(name))
				if h := s.History(key(name)); !ok || got.Revision != r.Revision || h[len(h)-1].Revision != r.Revision {
					t.Errorf("own write %d is not seen: %+v, %+v", r.Revision, got, h)
				}
				if s.Snapshot().Set().Get(key(name)) == nil || !s.Health().Persistent {
					t.Error("not in the set, or not healthy")
				}
			}
		})
	}
	wg.Wait()
	want(t, "revision", s.Snapshot().Revision(), 100)
}

func TestClose(t *testing.T) {
	for _, path := range []string{"", tempPath(t)} {
		s := open(t, path)
		mustPut(t, s, api, "a", "x")
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := put(s, api, "a", "y"); !errors.Is(err, store.ErrClosed) {
			t.Fatal(err)
		}
		if err := s.Flush(); !errors.Is(err, store.ErrClosed) {
			t.Fatal(err)
		}
		want(t, "contents", contents(s), "a=x@1 api")
	}
}
