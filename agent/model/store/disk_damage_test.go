package store_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/store"
	bolt "go.etcd.io/bbolt"
)

func TestDamagedFiles(t *testing.T) {
	source := filled(t, 20)
	good, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	original := contents(open(t, source))
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
					if !strings.Contains(original+"\n", l+"\n") {
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
		o.Now = clock() // always the same second
		s := openWith(t, o)
		names[s.Health().SetAside] = true
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "files set aside", len(names), 3)
}

// TestFlippedBytes flips one byte at any position: the store opens, and contains only records that
// were original.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	source := filled(t, 10)
	good, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, source)
	valid := map[string]bool{"a=first@41 api": true} // state before the last commits, in case their meta page is lost
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
	spoil(t, path, "pool")
	o := options(path)
	var b *bytes.Buffer
	o.Log, b = logged()
	s := openWith(t, o)
	q := s.Health().Quarantined
	if len(q) != 1 || q[0].Key != "Note/default/a" || q[0].Bucket != "pool" || !q[0].Restored ||
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
	spoil(t, path, "pool")
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
