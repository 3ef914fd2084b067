package store_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/disktest"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

var losses = flag.Int("losses", 1, "how much TestPowerLoss does: a factor")

// point is a state of the store after an operation.
type point struct {
	content
	end     int    // operations of the disk until then
	seen    uint64 // highest revision that was visible
	durable bool   // acknowledged: all later power losses retain it
	stored  bool   // the store has a file
}

// workload applies random batches and remembers what the store has acknowledged.
type workload struct {
	t      *testing.T
	r      *rand.Rand
	disk   *disktest.Disk
	path   string
	store  *store.Store
	points []point
	files  map[string]bool // contents that files have had, as "name=text"
	n      int
	faults bool
	pool   *exchange
	sent   int // messages before the present operation
}

// note remembers the state after an operation. If the operation failed, the disk may have want, but
// the store must have the previous content.
func (w *workload) note(want content, durable bool, err error) {
	w.t.Helper()
	last := w.points[len(w.points)-1].content
	now := contentOf(w.store)
	now.state = want.state
	p := point{content: now, end: w.disk.Position(), seen: w.store.Snapshot().Revision(), durable: durable && err == nil,
		stored: true}
	switch {
	case err != nil && !w.faults:
		w.t.Fatal(err)
	case err != nil && !now.equal(last):
		w.t.Fatalf("a refused write has changed the store to %s", p)
	case err == nil && !now.equal(want):
		w.t.Fatalf("the store has %s, want %s", p, want)
	}
	if d := disagreement(w.store) + w.pool.difference(); d != "" {
		w.t.Fatal(d)
	}
	if err != nil && w.pool.sent != w.sent {
		w.t.Fatal("a refused write has been sent")
	}
	if err != nil { // it may be on disk
		refused := p
		refused.content = want
		w.points = append(w.points, refused)
	}
	w.points = append(w.points, p)
}

// step applies one random operation.
func (w *workload) step() {
	w.n++
	w.pool.clock = w.pool.clock.Add(time.Second)
	w.sent = w.pool.sent
	if w.faults && w.r.IntN(3) == 0 {
		w.disk.SetFault(fault(w.r))
		defer w.disk.SetFault(nil)
	}
	have := w.points[len(w.points)-1].content
	switch k := w.r.IntN(16); {
	case k < 8:
		w.write()
	case k < 11:
		name := []string{"r1", "r2"}[w.r.IntN(2)]
		if w.r.IntN(2) == 0 {
			name = localNames[w.r.IntN(len(localNames))]
		}
		err := w.pool.write(w.change(name))
		now := contentOf(w.store)
		now.state = have.state
		w.note(now, false, err)
	case k < 13:
		name := []string{"file1", "file2", "r1", "r2"}[w.r.IntN(4)]
		op := store.Op{Put: res(name, fmt.Sprint(w.n))}
		if rec, ok := w.store.Snapshot().Get(key(name)); ok && rec.Source == fileA && w.r.IntN(2) == 0 {
			op = store.Op{Delete: key(name)}
		} else if ok && rec.Source == api {
			return
		}
		w.files[fmt.Sprintf("%s=%d", name, w.n)] = true
		_, err := w.store.Apply(store.Batch{Source: fileA, Ops: []store.Op{op}})
		now := contentOf(w.store)
		now.state = have.state
		w.note(now, false, err)
	case k < 14:
		var ops []engine.Op
		for i := range 3 {
			op := engine.Op{Bucket: "meta", Key: fmt.Sprint(i), Value: fmt.Append(nil, w.n)}
			if w.r.IntN(3) == 0 {
				op.Value = nil
			}
			if have.state == nil || w.r.IntN(3) == 0 {
				ops = append(ops, op)
			}
		}
		want, err := have.add(ops), w.store.WritePoolState(ops)
		if err != nil { // the disk may have it, until the next one
			want.state = nil
		}
		w.note(want, true, err)
	case k < 15:
		w.note(have, true, w.store.Flush())
	default:
		err := w.store.Close()
		w.disk.SetFault(nil)
		w.open(err == nil)
	}
}

// write applies a random batch of the API.
func (w *workload) write() {
	have := w.points[len(w.points)-1].content
	ops := w.writes(have)
	if len(ops) == 0 {
		return
	}
	_, err := w.store.Apply(store.Batch{Source: api, Durable: true, Ops: ops})
	w.note(have.after(ops), true, err)
}

// change returns a random change of a version.
func (w *workload) change(name string) engine.Put {
	p := engine.Put{Key: engine.Key(key(name)), Delete: w.r.IntN(3) == 0}
	if !p.Delete {
		p.Body, _ = encode(res(name, fmt.Sprint(w.n)))
		p.MediaType = "application/json"
	}
	return p
}

// writes returns a random batch of the API.
func (w *workload) writes(have content) (ops []store.Op) {
	for _, i := range w.r.Perm(len(allNames))[:1+w.r.IntN(3)] {
		name := allNames[i]
		if rec, ok := w.store.Snapshot().Get(key(name)); ok && rec.Source == fileA {
			continue
		}
		if _, ok := have.texts[name]; ok && w.r.IntN(3) == 0 {
			ops = append(ops, store.Op{Delete: key(name)})
			continue
		}
		now := fmt.Sprint(w.n)
		if name == "big" {
			now += strings.Repeat("x", w.r.IntN(20000))
		}
		ops = append(ops, store.Op{Put: res(name, now)})
	}
	return ops
}

// fault returns a function that fails one operation, or all from one on, or the sync of a meta
// page.
func fault(r *rand.Rand) func(disktest.Operation) error {
	n, syncs, first, kind := -1, 0, r.IntN(8), r.IntN(3)
	err := []error{unix.EIO, unix.ENOSPC, unix.EROFS}[r.IntN(3)]
	return func(o disktest.Operation) error {
		if n++; o.Kind == disktest.Sync {
			syncs++
		}
		if kind == 0 && n == first || kind == 1 && n >= first || kind == 2 && syncs == 2 && o.Kind == disktest.Sync {
			return err
		}
		return nil
	}
}

// open opens the store. If the last one was closed without an error, the new one has its content.
func (w *workload) open(closed bool) {
	s, err := store.Open(w.options(w.path))
	if err != nil {
		w.t.Fatal(err)
	}
	healthy(w.t, s)
	w.store, w.pool.store = s, nil
	now := contentOf(s).add(s.TakePoolState())
	if last := w.points[len(w.points)-1]; closed && !now.equal(last.content) {
		w.t.Fatalf("after a restart the store has %s, want %s", now, last)
	}
	w.note(now, closed, nil) // after a failed sync, only the kernel may have it
	w.pool.attach(s)
	w.pool.sync()
	after := contentOf(s)
	after.state = now.state
	w.note(after, false, nil)
}

func (w *workload) options(path string) store.Options {
	o := options(path)
	o.Shared = func(string) bool { return true }
	o.Origin = here
	o.Now = func() time.Time { return w.pool.clock }
	return o
}

// TestPowerLoss loses power at every operation on the disk during random writes. It opens the store
// with what the disk may contain then, and continues with one of these contents.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2 * *losses) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { losePower(t, seed, false) })
	}
}

// TestPowerLossAfterFaults is like TestPowerLoss with a disk that also returns errors. Content of a
// failed sync is never synced.
func TestPowerLossAfterFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2 * *losses) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { losePower(t, seed, true) })
	}
}

// TestPowerLossAfterFailedSync loses power after a store whose last sync has failed was closed and
// opened.
func TestPowerLossAfterFailedSync(t *testing.T) {
	t.Parallel()
	dir := disktest.TempDir(t)
	w := &workload{t: t, r: rand.New(rand.NewPCG(1, 1)), disk: disktest.New(t, dir), faults: true,
		path: filepath.Join(dir, "state.db"), files: map[string]bool{}, pool: newExchange(t),
		points: []point{{content: content{state: map[string]string{}}, durable: true}}}
	writes := func(count int) {
		for range count {
			w.n++
			w.pool.clock = w.pool.clock.Add(time.Second)
			w.sent = w.pool.sent
			w.write()
		}
	}
	w.disk.Run(func() {
		w.open(true)
		writes(8)
		syncs := 0
		w.disk.SetFault(func(o disktest.Operation) error {
			if o.Kind == disktest.Sync {
				syncs++
			}
			if syncs >= 2 { // the data are synced, the meta page is not
				return unix.EIO
			}
			return nil
		})
		writes(1)
		if w.store.Close() == nil {
			t.Fatal("the store was closed without a sync")
		}
		w.disk.SetFault(nil)
		w.open(false)
		writes(4)
	})
	w.lose()
}

func losePower(t *testing.T, seed uint64, faults bool) {
	r := rand.New(rand.NewPCG(seed, 0))
	dir, files, pool := disktest.TempDir(t), map[string]bool{}, newExchange(t)
	before := point{content: content{state: map[string]string{}}, durable: true}
	for round := range 4 {
		w := &workload{t: t, r: r, n: 100 * round, disk: disktest.New(t, dir), path: filepath.Join(dir, "state.db"),
			files:  files,
			points: []point{before}, faults: faults, pool: pool}
		w.disk.Run(func() {
			w.open(true)
			for range 12 {
				w.step()
			}
		})
		dir, before = w.lose()
	}
}

// lose opens contents that the disk may have after a power loss at each operation. It returns the
// directory of one of them, and what the store has there.
func (w *workload) lose() (dir string, p point) {
	w.t.Helper()
	_ = w.store.Close()
	replay, root := w.disk.Replay(), disktest.TempDir(w.t)
	chosen := w.r.IntN(w.points[len(w.points)-1].end + 1)
	for {
		for i := range 3 {
			image := filepath.Join(root, fmt.Sprintf("%d-%d", replay.Position(), i))
			if err := replay.Crash(w.r, image); err != nil {
				w.t.Fatal(err)
			}
			found := w.check(filepath.Join(image, "state.db"), replay.Position())
			if replay.Position() == chosen {
				dir, p = image, found
			}
		}
		if _, ok := replay.Step(); !ok {
			return dir, p
		}
	}
}

// millis is less than each revision that is a number of milliseconds.
const millis = 1e12

// check opens a store after a power loss, compares it with the acknowledged states, and writes to
// it.
func (w *workload) check(path string, position int) point {
	w.t.Helper()
	until := 1 + slices.IndexFunc(w.points, func(p point) bool { return p.end > position })
	if until == 0 {
		until = len(w.points)
	}
	from := until - 1
	for from > 0 && (w.points[from].end > position || !w.points[from].durable) {
		from--
	}
	allowed := w.points[from:until]
	s, err := store.Open(w.options(path))
	if err != nil {
		w.t.Fatalf("after operation %d: %v", position, err)
	}
	defer func() { _ = s.Close() }()
	now := contentOf(s).add(s.TakePoolState())
	if d := disagreement(s); d != "" {
		w.t.Fatalf("after operation %d: %s", position, d)
	}
	for _, rec := range s.Snapshot().Records() {
		if !rec.Source.Operators() && !w.files[rec.Name+"="+text(rec.Resource)] {
			w.t.Fatalf("after operation %d: %s has content that no file had", position, rec.Key)
		}
	}
	if !slices.ContainsFunc(allowed, func(p point) bool { return p.equal(now) }) {
		w.t.Fatalf("after operation %d the store has\n%s, want one of\n%s", position, now, allowed)
	}
	if h := s.Health(); h.Err != nil || allowed[0].stored && (h.SetAside != "" || len(h.Quarantined) > 0) {
		w.t.Fatalf("after operation %d: health %+v", position, h)
	}
	p := point{content: now, seen: s.Snapshot().Revision(), durable: true, stored: allowed[0].stored}
	if position%4 != 0 {
		return p
	}
	next, err := put(s, envoy, "next", fmt.Sprint(w.n, position))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, before := range w.points {
		// A store whose disk has failed continues with milliseconds, which a restart may not know.
		if before.end <= position && before.seen >= next.Revision && (before.seen < millis || next.Revision >= millis) {
			w.t.Fatalf("after operation %d: revision %d, but %d was visible before", position, next.Revision, before.seen)
		}
	}
	w.files["next="+text(next.Resource)], p.seen = true, next.Revision
	return p
}
