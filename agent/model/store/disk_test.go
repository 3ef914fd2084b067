package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
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

	// Owners, revisions and unchanged content are the same after the restart.
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
	edit(t, path, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), store.MetaValue("format", "2"))
	})
	_, err := store.Open(options(path))
	var newer *store.FormatError
	if !errors.As(err, &newer) || newer.Format != "2" || !strings.Contains(err.Error(), path) {
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
		if _, err := s.Apply(store.Batch{Source: api, Ops: ops}); err != nil {
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

func TestDamagedFiles(t *testing.T) {
	source := filled(t, 20)
	good, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	written := contents(open(t, source))
	garbage := make([]byte, 100_000)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range garbage {
		garbage[i] = byte(r.Uint32())
	}
	foreign := filepath.Join(t.TempDir(), "foreign.db")
	edit(t, foreign, func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
	foreignBytes, err := os.ReadFile(foreign)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"one byte":            good[:1],
		"half a page":         good[:2048],
		"one page":            good[:4096],
		"two pages":           good[:8192],
		"half of it":          good[:len(good)/2],
		"garbage":             garbage,
		"garbage after metas": append(bytes.Clone(good[:8192]), garbage...),
		"zeros":               make([]byte, len(good)),
		"another program's":   foreignBytes,
		"text":                []byte(strings.Repeat("resources:\n", 1000)),
	} {
		t.Run(name, func(t *testing.T) {
			path := tempPath(t)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			o := options(path)
			var b *bytes.Buffer
			o.Log, b = logged()
			s := openWith(t, o)
			h := s.Health()
			if !strings.HasPrefix(h.SetAside, path+".damaged-") || !h.Persistent || h.Err != nil {
				t.Fatalf("health: %+v", h)
			}
			if !strings.Contains(b.String(), h.SetAside) {
				t.Fatalf("the log does not name %s:\n%s", h.SetAside, b)
			}
			kept, err := os.ReadFile(h.SetAside)
			if err != nil || !bytes.Equal(kept, content) {
				t.Fatal("the damaged file is not kept as it was: ", err)
			}
			if got := contents(s); name != "half of it" {
				want(t, "contents", got, "")
			} else if got == "" {
				t.Fatal("nothing is salvaged")
			} else {
				for _, l := range strings.Split(got, "\n") {
					if !strings.Contains(written+"\n", l+"\n") {
						t.Fatalf("%q was never in force", l)
					}
				}
			}
			if r := mustPut(t, s, api, "a", "a").Revision; r <= 100 {
				t.Fatalf("revision %d was in use before", r)
			}
			before := contents(s)
			s = reopen(t, s, path)
			healthy(t, s)
			want(t, "contents", contents(s), before)
		})
	}
}

func TestEmptyFile(t *testing.T) {
	path := tempPath(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	healthy(t, s)
	if r := mustPut(t, s, api, "a", "a").Revision; r < 1e12 {
		t.Fatalf("revision %d may have been in use before", r)
	}
}

func TestTwoDamagedFiles(t *testing.T) {
	path := tempPath(t)
	names := map[string]bool{}
	for range 3 {
		if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		o := options(path)
		o.Now = clock() // the same second each time
		s := openWith(t, o)
		names[s.Health().SetAside] = true
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "files set aside", len(names), 3)
}

// TestFlippedBytes flips one byte anywhere: the store opens, and every record that it has is one
// that was written.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	source := filled(t, 10)
	good, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, source)
	valid := map[string]bool{"a=first@41 api": true} // before the last commits, should their meta page be lost
	for _, l := range strings.Split(contents(s), "\n") {
		valid[l] = true
	}
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	r := rand.New(rand.NewPCG(3, 4))
	outcomes := map[string]int{}
	for range rounds {
		at := r.IntN(len(good))
		if r.IntN(3) == 0 { // headers and elements of pages
			at = at/4096*4096 + r.IntN(200)
		}
		bad := bytes.Clone(good)
		bad[at] ^= byte(1 + r.IntN(255))
		path := tempPath(t)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(options(path))
		if err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		h := s.Health()
		switch {
		case h.SetAside != "":
			outcomes["set aside"]++
		case len(h.Quarantined) > 0:
			outcomes["quarantined"]++
		default:
			outcomes["no effect"]++
		}
		for _, l := range strings.Split(contents(s), "\n") {
			if l != "" && !valid[l] {
				t.Fatalf("byte %d: %q was never written", at, l)
			}
		}
		mustPut(t, s, api, "new", "new")
		for i := range 20 {
			_ = s.History(key(fmt.Sprintf("n%03d", i)))
		}
		after := contents(s)
		s = reopen(t, s, path)
		healthy(t, s)
		want(t, fmt.Sprintf("byte %d: after a restart", at), contents(s), after)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(outcomes)
	if outcomes["set aside"] == 0 || outcomes["quarantined"] == 0 || outcomes["no effect"] == 0 {
		t.Fatal("an outcome is missing: ", outcomes)
	}
}

// spoil changes the value of a in a bucket.
func spoil(t *testing.T, path, bucket string) {
	t.Helper()
	edit(t, path, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		prefix := []byte("Note\x00default\x00a\x00")
		var last, value []byte
		c := b.Cursor()
		for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
			last, value = bytes.Clone(k), bytes.Clone(v)
		}
		value[len(value)-3] ^= 1
		return b.Put(last, value)
	})
}

func TestDamagedRecordComesBackFromHistory(t *testing.T) {
	path := filled(t, 1)
	spoil(t, path, "records")
	o := options(path)
	var b *bytes.Buffer
	o.Log, b = logged()
	s := openWith(t, o)
	q := s.Health().Quarantined
	if len(q) != 1 || q[0].Key != "Note/default/a" || q[0].Bucket != "records" || !q[0].Restored ||
		!strings.Contains(q[0].Reason, "checksum") {
		t.Fatalf("quarantined: %+v", q)
	}
	if !strings.Contains(b.String(), "Note/default/a") {
		t.Fatalf("the log does not name it: %s", b)
	}
	r, _ := s.Snapshot().Get(key("a"))
	want(t, "record", text(r.Resource), "second")
	want(t, "pending", s.Health().Pending, 0)
	s = reopen(t, s, path)
	healthy(t, s)
	want(t, "record", text(r.Resource), "second")
}

func TestDamagedRecordIsQuarantined(t *testing.T) {
	path := filled(t, 1)
	spoil(t, path, "records")
	spoil(t, path, "history")
	s := open(t, path)
	want(t, "quarantined", len(s.Health().Quarantined), 2)
	want(t, "set aside", s.Health().SetAside, "")
	if _, ok := s.Snapshot().Get(key("a")); ok {
		t.Fatal("a damaged record is in force")
	}
	want(t, "others", s.Snapshot().Len(), 5)
	want(t, "history", revisions(s, "a"), "5:first")
	s = reopen(t, s, path)
	healthy(t, s)
	mustPut(t, s, api, "a", "third")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bolt.Tx) error {
		want(t, "values in quarantine", tx.Bucket([]byte("quarantine")).Stats().KeyN, 2)
		return nil
	})
}

// TestDowngrade opens a file with a codec that does not know a kind, and again with one that does.
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
