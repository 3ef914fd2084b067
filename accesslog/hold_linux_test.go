package accesslog

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const holderVariable = "ACCESSLOG_TEST_HOLDER"

// TestHoldProcess: a process holds FIFOs; it ends, another one gets them again; with nothing to hold it ends by itself.
func TestHoldProcess(t *testing.T) {
	run := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := []string{"/usr/bin/env", holderVariable + "=" + run, self}
	h := NewHoldProcess(run, command)
	dir, to := pipeDir(t), &sink{}
	path := filepath.Join(dir, "a")
	ps, stop := startPipes(t, PipesOptions{Dir: dir, Group: -1, Holder: h})
	setOne(t, ps, path, to)
	held := func() bool {
		got, err := h.Held()
		return err == nil && slices.Equal(got, []string{path})
	}
	if !held() {
		t.Fatalf("not held: %s", h)
	}
	before := h.pid
	if err := unix.Kill(int(before), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another process holds", func() bool { return h.Check() == nil && held() && h.pid != before })
	w := openWriter(t, path)
	put(t, w, "1\n")
	until(t, "a line", func() bool { return to.String() == "1\n" })
	stop()
	put(t, w, "2\n") // nobody reads, somebody holds
	w.Close()
	h = NewHoldProcess(run, nil) // of the next agent, which finds the process
	o := PipesOptions{Dir: dir, Group: -1, Holder: h, Found: func(string, map[string]string) Destination { return to }}
	ps, stop = startPipes(t, o)
	until(t, "the line of meanwhile", func() bool { return to.String() == "1\n2\n" })
	ps.Gone("web")
	until(t, "release", func() bool { got, err := h.Held(); return err == nil && len(got) == 0 })
	pid := h.pid
	stop()
	until(t, "the end of the process", func() bool { return unix.Kill(int(pid), 0) != nil })
}

func TestHoldIsServedOnce(t *testing.T) {
	run := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- ServeHold(ctx, run, 0) }()
	h := NewHoldProcess(run, nil)
	until(t, "the holder", func() bool { _, err := h.Held(); return err == nil })
	if err := ServeHold(ctx, run, 0); err != ErrHeldElsewhere {
		t.Errorf("second: %v", err)
	}
	if err := h.Hold("/x", os.Stdin); err == nil {
		t.Error("holds what is no FIFO")
	}
	h.mu.Lock()
	h.disconnect()
	h.mu.Unlock()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func holdUntilIdle(dir string) int {
	if err := ServeHold(context.Background(), dir, 20*time.Millisecond); err != nil {
		return 1
	}
	return 0
}

func FuzzHoldRequest(f *testing.F) {
	f.Add([]byte{holdVersion, opHold, '/', 'a'})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &holdServer{held: map[string]*os.File{}}
		if _, err := s.answer(b, nil); err == nil && (len(b) < 2 || b[0] != holdVersion || b[1] == opHold) {
			t.Errorf("%q is accepted", b)
		}
	})
}
