package hold

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSupervisedHolderTakesOver: a holder with Stay takes the files of a process that an agent has
// started, which then ends. The agent passes its files to the new one at once.
func TestSupervisedHolderTakesOver(t *testing.T) {
	run := t.TempDir()
	k := Open(Options{Dir: run, Command: selfCommand(t, run)})
	path := filepath.Join(run, "a")
	hold(t, k, path, newFIFO(t, path))
	child := pid(k)
	earlier := filepath.Join(run, "earlier") // of an agent that has ended
	other := Open(Options{Dir: run})
	hold(t, other, earlier, newFIFO(t, earlier))
	end(other)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- k.Run(ctx) }()
	serving(t, run, ServeOptions{Stay: true})
	until(t, "the agent is connected to the new holder", func() bool { return pid(k) == os.Getpid() && k.By(path) != "" })
	until(t, "the child ends", func() bool { return errors.Is(unix.Kill(child, 0), unix.ESRCH) })
	if !readers(t, path) || !readers(t, earlier) {
		t.Error("files are not held")
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// TestHolderIsRestarted: when a supervised holder ends, the agent starts no other one, and passes
// its files to the next one as soon as that serves.
func TestHolderIsRestarted(t *testing.T) {
	run := t.TempDir()
	started := filepath.Join(run, "started")
	k := Open(Options{Dir: run, Command: []string{"/usr/bin/touch", started}})
	stop := serving(t, run, ServeOptions{Stay: true})
	path := filepath.Join(run, "a")
	hold(t, k, path, newFIFO(t, path))
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- k.Run(ctx) }()
	for range 3 {
		stop()
		until(t, "the agent sees the end", func() bool { return k.By(path) == "" })
		second := filepath.Join(run, "b")
		_ = os.Remove(second)
		held, f := make(chan error, 1), newFIFO(t, second)
		go func() { held <- k.Hold(second, f) }() // waits for the next holder
		stop = serving(t, run, ServeOptions{Stay: true})
		if err := <-held; err != nil {
			t.Fatal(err)
		}
		f.Close()
		until(t, "all is held", func() bool { return k.By(path) != "" && k.By(second) != "" })
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("the agent has started a holder")
	}
}

// TestHolderOpensFIFOs: a supervised holder that starts without an agent opens the FIFOs, and a
// FIFO that the agent releases has no reader, whatever the name of the FIFO.
func TestHolderOpensFIFOs(t *testing.T) {
	run := t.TempDir()
	dir := filepath.Join(run, FIFODir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	same, link, gone := filepath.Join(dir, "same"), filepath.Join(dir, "link"), filepath.Join(dir, "gone")
	for _, path := range []string{same, link, gone} {
		newFIFO(t, path).Close()
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	serving(t, run, ServeOptions{Stay: true})
	for _, path := range []string{same, link, gone} {
		if !readers(t, path) {
			t.Fatalf("%s has no reader", path)
		}
	}
	if s, err := Check(run); err != nil || s != (State{Pid: os.Getpid(), Protocol: Protocol, FIFOs: 3, Stay: true}) {
		t.Errorf("state %+v, %v", s, err)
	}
	k := Open(Options{Dir: run})
	hold(t, k, same, openFIFO(t, same))
	hold(t, k, "/another/name", openFIFO(t, link))
	for name, path := range map[string]string{same: same, "/another/name": link, gone: gone} {
		if err := k.Release(name); err != nil || readers(t, path) {
			t.Errorf("released %s: %v, reader %v", path, err, readers(t, path))
		}
	}
	end(k)
}

// TestCheck reports a directory without a holder, and an old holder.
func TestCheck(t *testing.T) {
	run := t.TempDir()
	if _, err := Check(run); err == nil {
		t.Error("a holder without a process")
	}
	serving(t, run, ServeOptions{Stay: true})
	k := Open(Options{Dir: run})
	f, _ := udpSocket(t)
	hold(t, k, "dns/udp/a", f)
	if s, err := Check(run); err != nil || s.Sockets != 1 || s.FIFOs != 0 {
		t.Errorf("state %+v, %v", s, err)
	}
	end(k)
}

// TestHolderEndsAtOnce: a process that accepts a connection and ends causes an error, not more.
func TestHolderEndsAtOnce(t *testing.T) {
	run := t.TempDir()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(run, socketName), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	k := Open(Options{Dir: run})
	path := filepath.Join(run, "a")
	if err := k.Hold(path, newFIFO(t, path)); err == nil || k.By(path) != "" || k.Holds(path) {
		t.Errorf("%v, held by %q", err, k.By(path))
	}
	if c, err := k.process.check(); err == nil || c != nil {
		t.Errorf("check: %v %v", c, err)
	}
	if f, ok := k.Take(path); ok || len(k.Names("")) > 0 {
		t.Errorf("took %v", f)
	}
	if _, err := Check(run); err == nil {
		t.Error("a state without a process")
	}
	end(k)
}
