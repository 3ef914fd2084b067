package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

// slowDisk is a disk that can stall or fail at the end of a transaction.
type slowDisk struct {
	gate atomic.Pointer[chan error]
	in   chan struct{} // a transaction waits
}

// stall makes transactions wait until release is called with their result.
func (d *slowDisk) stall() (release func(error)) {
	gate := make(chan error)
	d.gate.Store(&gate)
	return func(err error) {
		d.gate.Store(nil)
		gate <- err
	}
}

func (d *slowDisk) sync() error {
	gate := d.gate.Load()
	if gate == nil {
		return nil
	}
	d.in <- struct{}{}
	return <-*gate
}

func slow(t *testing.T) (*store.Store, *slowDisk, string) {
	t.Helper()
	path := tempPath(t)
	d := &slowDisk{in: make(chan struct{}, 1)}
	o := options(path)
	o.Sync = d.sync
	return openWith(t, o), d, path
}

// inFlight starts a write and returns when it waits for the disk.
func inFlight(t *testing.T, s *store.Store, d *slowDisk, name, text string) (release func(error), done chan error) {
	t.Helper()
	release, done = d.stall(), make(chan error, 1)
	go func() {
		_, err := put(s, api, name, text)
		done <- err
	}()
	<-d.in
	return release, done
}

// TestWriteThatWaitsForTheDisk changes files while an API write waits: the changes are visible, and
// the write is not.
func TestWriteThatWaitsForTheDisk(t *testing.T) {
	s, d, path := slow(t)
	mustPut(t, s, fileA, "f", "1")
	ch, stop := s.Watch()
	defer stop()
	release, done := inFlight(t, s, d, "a", "1")
	if _, err := put(s, fileA, "f", "2"); err != nil {
		t.Fatal(err)
	}
	want(t, "signals", len(ch), 1)
	want(t, "contents", contents(s), "f=2@3 file:/etc/a.yaml")
	want(t, "history of what waits", revisions(s, "a"), "")
	if _, err := del(s, api, "missing"); err == nil {
		t.Error("what is refused for other reasons waits for the disk")
	}
	h := s.Health()
	if h.Pending != 1 || !h.Persistent || h.PendingSince.IsZero() {
		t.Errorf("health: %+v", h)
	}
	release(nil)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	healthy(t, s)
	want(t, "contents", contents(s), "a=1@4 api\nf=2@3 file:/etc/a.yaml")
	want(t, "history", revisions(s, "a"), "4:1")
	s = reopen(t, s, path)
	want(t, "contents", contents(s), "a=1@4 api\nf=2@3 file:/etc/a.yaml")
	want(t, "history", revisions(s, "a"), "4:1")
	want(t, "history", revisions(s, "f"), "1:1 3:2")
	want(t, "revision", s.Snapshot().Revision(), 4)
}

// TestWriteThatFailsBehind makes the disk fail an API write after files have changed.
func TestWriteThatFailsBehind(t *testing.T) {
	s, d, path := slow(t)
	mustPut(t, s, fileA, "f", "1")
	release, done := inFlight(t, s, d, "a", "1")
	if _, err := put(s, fileA, "f", "2"); err != nil {
		t.Fatal(err)
	}
	release(errors.New("fsync: input/output error"))
	refused(t, <-done, "input/output error")
	want(t, "contents", contents(s), "f=2@3 file:/etc/a.yaml")
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	want(t, "history", revisions(s, "a"), "")
	s = reopen(t, s, path)
	want(t, "contents", contents(s), "f=2@3 file:/etc/a.yaml")
	want(t, "history", revisions(s, "a"), "")
}

// TestWriteThatIsOvertaken makes a file create the resource that an API write is about to create.
func TestWriteThatIsOvertaken(t *testing.T) {
	s, d, path := slow(t)
	release, done := inFlight(t, s, d, "a", "api")
	if _, err := put(s, fileA, "a", "file"); err != nil {
		t.Fatal(err)
	}
	release(nil)
	var conflict *store.ConflictError
	if err := <-done; !errors.As(err, &conflict) {
		t.Fatalf("error %v", err)
	}
	healthy(t, s)
	want(t, "contents", contents(s), "a=file@2 file:/etc/a.yaml")
	s = reopen(t, s, path)
	want(t, "contents", contents(s), "a=file@2 file:/etc/a.yaml")
	want(t, "history", revisions(s, "a"), "2:file")
}

// TestChangesAreWrittenBehind makes many changes while one transaction waits: they are visible, and
// the next transaction contains all of them. Close waits for it.
func TestChangesAreWrittenBehind(t *testing.T) {
	s, d, path := slow(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	release := d.stall()
	for i := range 30 {
		if _, err := put(s, fileA, fmt.Sprintf("f%d", i%3), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	<-d.in
	const all = "f0=27@28 file:/etc/a.yaml\nf1=28@29 file:/etc/a.yaml\nf2=29@30 file:/etc/a.yaml"
	want(t, "contents", contents(s), all)
	want(t, "pending", s.Health().Pending, 3)
	want(t, "history", len(s.History(key("f0"))), 10)
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("Close does not wait for the disk: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	release(nil)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	<-ended
	s = open(t, path)
	want(t, "contents", contents(s), all)
	want(t, "history", revisions(s, "f0"), "1:0 4:3 7:6 10:9 13:12 16:15 19:18 22:21 25:24 28:27")
}

// TestRunWrites checks that Run writes a change, and retries a disk that failed.
func TestRunWrites(t *testing.T) {
	s, d, path := slow(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	release := d.stall()
	if _, err := put(s, fileA, "a", "1"); err != nil {
		t.Fatal(err)
	}
	<-d.in
	release(errors.New("full"))
	late := time.After(2 * time.Minute)
	for s.Health().Pending > 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			t.Fatalf("health: %+v", s.Health())
		}
	}
	healthy(t, s)
	want(t, "copy", contents(crashed(t, path)), "a=1@1 file:/etc/a.yaml")
}

// crashed opens a copy of an open store's file, which is its state after a crash.
func crashed(t *testing.T, path string) *store.Store {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := tempPath(t)
	if err := os.WriteFile(copied, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return open(t, copied)
}

// TestRevisionsAfterACrash loses changes of files with visible revisions: no revision is reused.
func TestRevisionsAfterACrash(t *testing.T) {
	if testing.Short() {
		t.Skip("a hundred thousand revisions, one after the other")
	}
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, api, "a", "1")
	var ops []store.Op
	for i := range 3000 {
		ops = append(ops, store.Op{Put: res(fmt.Sprintf("f%d", i), "1")})
	}
	last, err := s.Apply(store.Batch{Source: fileA, Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	shown := last[len(last)-1].Revision
	want(t, "shown", shown, 3001)
	after := crashed(t, path)
	want(t, "contents after the crash", contents(after), "a=1@1 api")
	if r := mustPut(t, after, fileA, "f0", "2"); r.Revision <= shown {
		t.Errorf("revision %d after the crash, %d was shown before it", r.Revision, shown)
	}
	// Beyond the mark, revisions continue from the milliseconds since 1970.
	for round := 2; s.Snapshot().Revision() < 1e12; round++ {
		for i := range ops {
			ops[i].Put = res(fmt.Sprintf("f%d", i), fmt.Sprint(round))
		}
		if round > 100_000/len(ops)+2 {
			t.Fatalf("revision %d is shown and may be handed out again", s.Snapshot().Revision())
		}
		if _, err := s.Apply(store.Batch{Source: fileA, Ops: ops}); err != nil {
			t.Fatal(err)
		}
	}
}
