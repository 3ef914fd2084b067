package losstest

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/peers"
	"github.com/nearside-mesh/nearside/agent/test/disktest"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// buckets returns the content of a bbolt file.
func buckets(t *testing.T, path string) string {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	do(t, err)
	defer db.Close()
	var out bytes.Buffer
	do(t, db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				fmt.Fprintf(&out, "%s %q %x\n", name, k, v)
				return nil
			})
		})
	}))
	return out.String()
}

// migrate opens the store of a node and closes it.
func migrate(t *testing.T, dir string) (have, all string) {
	t.Helper()
	id, err := peers.OpenIdentity(dir)
	do(t, err)
	s, err := store.Open(options(dir, engine.Origin{Node: id.Node, Name: "a"}, slog.New(slog.DiscardHandler)))
	do(t, err, peers.RetireImported(dir, s))
	if h := s.Health(); !h.Persistent || h.Err != nil || h.SetAside != "" || len(h.Quarantined) > 0 {
		t.Fatalf("health %+v", h)
	}
	var state []string
	for _, op := range s.TakePoolState() {
		state = append(state, fmt.Sprintf("%s %q %x", op.Bucket, op.Key, op.Value))
	}
	slices.Sort(state)
	have, all = live(s), versions(s)+strings.Join(state, "\n")
	do(t, s.Close())
	return have, all
}

// TestFullDiskDuringMigration checks that a migration that the disk refuses leaves the files of the
// first release, and that the next start completes it.
func TestFullDiskDuringMigration(t *testing.T) {
	t.Parallel()
	dir := disktest.TempDir(t)
	for _, name := range []string{"gossip.db", "nearside.db", "node-id"} {
		placeFile(t, dir, name, release1(t, "a-newer/"+name))
	}
	d := disktest.New(t, dir)
	d.SetFault(func(o disktest.Operation) error {
		if o.Kind == disktest.Write {
			return unix.ENOSPC
		}
		return nil
	})
	d.Run(func() {
		s, err := store.Open(options(dir, engine.Origin{Node: engine.NodeID{1}, Name: "a"}, slog.New(slog.DiscardHandler)))
		do(t, err, peers.RetireImported(dir, s))
		if h := s.Health(); h.Persistent || h.Err == nil {
			t.Errorf("health %+v", h)
		}
		if s.Close() == nil {
			t.Error("the store was closed without an error")
		}
	})
	if _, err := os.Stat(filepath.Join(dir, "gossip.db")); err != nil {
		t.Fatal(err)
	}
	if have, _ := migrate(t, dir); have != "web default fromb=1s late=1s slow=2s" {
		t.Fatalf("after the second start: %s", have)
	}
}

// TestPowerLossDuringMigration loses power at each operation of the migration. Afterwards the next
// start completes the migration without a loss, and the files for a return to the first release are
// complete.
func TestPowerLossDuringMigration(t *testing.T) {
	t.Parallel()
	for _, age := range []string{"a-older", "a-newer"} {
		dir := disktest.TempDir(t)
		for _, name := range []string{"gossip.db", "nearside.db", "node-id"} {
			placeFile(t, dir, name, release1(t, age+"/"+name))
		}
		pool, state := buckets(t, filepath.Join(dir, "gossip.db")), buckets(t, filepath.Join(dir, "nearside.db"))
		d := disktest.New(t, dir)
		var have, all string
		d.Run(func() { have, all = migrate(t, dir) })
		want := "web default fromb=1s gone=1s slow=1s"
		if age == "a-newer" {
			want = "web default fromb=1s late=1s slow=2s"
		}
		if have != want || (age == "a-newer") != strings.Contains(all, "-deleted") {
			t.Fatalf("%s: the store has %s (%s), want %s", age, have, all, want)
		}
		root, random, replay := disktest.TempDir(t), rand.New(rand.NewPCG(1, 1)), d.Replay()
		for {
			for i := range 4 {
				image := filepath.Join(root, fmt.Sprintf("%d-%d", replay.Position(), i))
				do(t, replay.Crash(random, image))
				now, versionsNow := migrate(t, image)
				at := fmt.Sprintf("%s: after operation %d, %d", age, replay.Position(), i)
				if now != have || versionsNow != all {
					t.Fatalf("%s: the store has %s (%s), want %s (%s)", at, now, versionsNow, have, all)
				}
				if got := buckets(t, filepath.Join(image, "gossip.db.format1")); got != pool {
					t.Fatalf("%s: gossip.db.format1 differs:\n%s", at, got)
				}
				if got := buckets(t, filepath.Join(image, "nearside.db.format1")); got != state {
					t.Fatalf("%s: nearside.db.format1 differs:\n%s", at, got)
				}
				if _, err := os.Stat(filepath.Join(image, "gossip.db")); err == nil {
					t.Fatalf("%s: gossip.db still exists", at)
				}
				do(t, os.RemoveAll(image))
			}
			if _, ok := replay.Step(); !ok {
				break
			}
		}
	}
}
