package store_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// child writes until it is killed. Each batch makes the same change to two resources, and sometimes
// deletes a third. Each line of its output is an acknowledged batch.
func child(path string) int {
	s, err := store.Open(options(path))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for n := s.Snapshot().Revision(); ; n++ {
		name := fmt.Sprintf("%d", n%5)
		ops := []store.Op{{Put: res("left"+name, fmt.Sprint(n))}, {Put: res("right"+name, fmt.Sprint(n))}}
		if _, ok := s.Snapshot().Get(key("gone")); ok {
			ops = append(ops, store.Op{Delete: key("gone")})
		} else {
			ops = append(ops, store.Op{Put: res("gone", fmt.Sprint(n))})
		}
		rs, err := s.Apply(store.Batch{Source: api, Durable: true, Ops: ops})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		// A single write to the pipe ensures that a complete line means that Apply has returned.
		if _, err := os.Stdout.WriteString(fmt.Sprintf("%d %s %d\n", rs[0].Revision, name, n)); err != nil {
			return 1
		}
	}
}

// TestKill kills a writer with SIGKILL at random times, and checks that all acknowledged writes
// exist.
func TestKill(t *testing.T) {
	t.Parallel()
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	path := tempPath(t)
	r := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	model := map[resource.Key][]uint64{} // revisions of all keys at the end of the last round
	var lastRevision uint64
	for round := range rounds {
		acked := killed(t, path, r.IntN(12))
		s := open(t, path)
		healthy(t, s)
		var top uint64
		for _, line := range acked {
			var revision, n uint64
			var name string
			if _, err := fmt.Sscan(line, &revision, &name, &n); err != nil {
				t.Fatalf("round %d: output %q: %v", round, line, err)
			}
			if revision <= lastRevision {
				t.Fatalf("round %d: revision %d was handed out before (%d)", round, revision, lastRevision)
			}
			top = revision + 2
			for i, side := range []string{"left", "right"} {
				at := revision + uint64(i)
				found := false
				h := s.History(key(side + name))
				for _, v := range h {
					found = found || v.Revision == at && text(v.Resource) == fmt.Sprint(n)
				}
				if !found && (len(h) < store.HistoryLimit || h[0].Revision <= at) {
					t.Fatalf("round %d: acknowledged revision %d of %s is lost", round, at, side+name)
				}
			}
		}
		snap := s.Snapshot()
		if snap.Revision() < top {
			t.Fatalf("round %d: revision %d, acknowledged up to %d", round, snap.Revision(), top)
		}
		lastRevision = snap.Revision()
		whole(t, s, model)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killed runs the writer, kills it after the given number of lines, and returns all lines that it
// wrote.
func killed(t *testing.T, path string, after int) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childPath+"="+path)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	sc := bufio.NewScanner(out)
	for len(lines) <= after && sc.Scan() {
		lines = append(lines, sc.Text())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for sc.Scan() { // output before the kill
		lines = append(lines, sc.Text())
	}
	_ = cmd.Wait() // killed
	if len(lines) <= after || stderr.Len() > 0 {
		t.Fatalf("the writer ended by itself after %d lines: %s", len(lines), stderr.String())
	}
	return lines
}

// whole checks that batches are atomic, that each record is the last of its history, and that
// histories have no gap since the last round. It updates the model.
func whole(t *testing.T, s *store.Store, model map[resource.Key][]uint64) {
	t.Helper()
	snap := s.Snapshot()
	names := []string{"gone"}
	for n := range 5 {
		left, lok := snap.Get(key(fmt.Sprintf("left%d", n)))
		right, rok := snap.Get(key(fmt.Sprintf("right%d", n)))
		if lok != rok || lok && (text(left.Resource) != text(right.Resource) || left.Revision+1 != right.Revision) {
			t.Fatalf("half a batch: %+v and %+v", left, right)
		}
		names = append(names, fmt.Sprintf("left%d", n), fmt.Sprintf("right%d", n))
	}
	for _, name := range names {
		h := s.History(key(name))
		rec, ok := snap.Get(key(name))
		if len(h) == 0 {
			if ok {
				t.Fatalf("%s has no history", name)
			}
			continue
		}
		last := h[len(h)-1]
		if ok == last.Deleted || ok && (last.Revision != rec.Revision || last.Resource.Digest != rec.Digest) {
			t.Fatalf("%s: record %+v, last revision %+v", name, rec, last)
		}
		now := map[uint64]bool{}
		var list []uint64
		for i, v := range h {
			if i > 0 && v.Revision <= h[i-1].Revision {
				t.Fatalf("%s: the history is out of order", name)
			}
			now[v.Revision] = true
			list = append(list, v.Revision)
		}
		for _, old := range model[key(name)] {
			if !now[old] && (len(h) < store.HistoryLimit || old >= h[0].Revision) {
				t.Fatalf("%s: revision %d is gone from the history", name, old)
			}
		}
		model[key(name)] = list
	}
}
