package hold

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProcess checks that a process holds FIFOs. If it is killed, another process receives them,
// and the next agent finds that process. The process exits when it holds no more FIFOs.
func TestProcess(t *testing.T) {
	run := t.TempDir()
	k := Open(Options{Dir: run, Command: selfCommand(t, run)})
	path := filepath.Join(run, "a")
	hold(t, k, path, newFIFO(t, path))
	first := pid(k)
	if !readers(t, path) || !strings.Contains(k.By(path), "nearside hold (pid ") || k.By("other") != "" {
		t.Fatalf("held by %q", k.By(path))
	}
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another process holds", func() bool {
		c, err := k.process.check()
		if c != nil {
			c.Close()
		}
		return err == nil && pid(k) != first && readers(t, path)
	})
	end(k)
	if !readers(t, path) {
		t.Fatal("nobody holds after the agent")
	}
	k = Open(Options{Dir: run}) // the next agent
	hold(t, k, path, openFIFO(t, path))
	last := pid(k)
	if names, err := k.process.names(); err != nil || !slices.Equal(names, []string{path}) {
		t.Errorf("held: %q, %v", names, err)
	}
	if err := k.Release(path); err != nil {
		t.Error(err)
	}
	end(k)
	until(t, "the end of the process", func() bool { return unix.Kill(last, 0) != nil })
}

// TestTakenSockets: the holder returns listening sockets by name to the next agent, with the
// connections and packets that arrived in between.
func TestTakenSockets(t *testing.T) {
	open := opener(t)
	k := open()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]interface{ File() (*os.File, error) }{
		"dns/tcp/127.0.0.1:53": tcp.(*net.TCPListener),
		"dns/udp/127.0.0.1:53": udp.(*net.UDPConn),
	} {
		f, err := s.File()
		if err != nil {
			t.Fatal(err)
		}
		hold(t, k, name, f)
	}
	tcp.Close()
	udp.Close()
	end(k)
	conn, err := net.Dial("tcp", tcp.Addr().String()) // it stays in the backlog
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	query, err := net.Dial("udp", udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	if _, err := query.Write([]byte("query")); err != nil {
		t.Fatal(err)
	}
	k = open()
	if got := k.Names("dns/udp/"); !slices.Equal(got, []string{"dns/udp/127.0.0.1:53"}) {
		t.Errorf("names: %q", got)
	}
	if f, ok := k.Take("dns/udp/127.0.0.1:5353"); ok {
		t.Errorf("took %v", f)
	}
	f, ok := k.Take("dns/tcp/127.0.0.1:53")
	if !ok {
		t.Fatal("no listener")
	}
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	f, ok = k.Take("dns/udp/127.0.0.1:53")
	if !ok {
		t.Fatal("no socket")
	}
	p, err := net.FilePacketConn(f)
	if err != nil {
		t.Fatal(err)
	}
	hold(t, k, "dns/udp/127.0.0.1:53", f) // each agent holds its sockets again
	defer p.Close()
	b := make([]byte, 100)
	if n, _, err := p.ReadFrom(b); err != nil || string(b[:n]) != "query" {
		t.Errorf("%q, %v", b[:n], err)
	}
	for _, name := range []string{"dns/tcp/127.0.0.1:53", "dns/udp/127.0.0.1:53"} {
		if err := k.Release(name); err != nil {
			t.Error(err)
		}
		if f, ok := k.Take(name); ok {
			t.Errorf("%s is still held: %v", name, f.Close())
		}
	}
	end(k)
}

// TestSocketsWithoutAnAgent: a process releases the sockets of DNS and the API if no agent returns,
// and keeps FIFOs and the sockets of Envoys.
func TestSocketsWithoutAnAgent(t *testing.T) {
	run := t.TempDir()
	serving(t, run, ServeOptions{Stay: true, away: 30 * time.Millisecond})
	k := Open(Options{Dir: run})
	addrs := map[string]string{}
	for _, name := range []string{"dns/udp/a", "api/a", "in/a"} {
		f, addr := udpSocket(t)
		addrs[name] = addr
		hold(t, k, name, f)
	}
	path := filepath.Join(run, "a")
	hold(t, k, path, newFIFO(t, path))
	if got := k.Names("dns/"); !slices.Equal(got, []string{"dns/udp/a"}) || !k.Holds("dns/udp/a") || k.Holds("dns/udp/b") {
		t.Errorf("names %q", got)
	}
	taken := func(name string) bool {
		c, err := net.ListenPacket("udp", addrs[name])
		if err == nil {
			c.Close()
		}
		return err != nil
	}
	for began := time.Now(); time.Since(began) < 100*time.Millisecond; { // while an agent is connected
		if !taken("dns/udp/a") {
			t.Fatal("the socket is given up")
		}
	}
	end(k)
	until(t, "the sockets are given up", func() bool { return !taken("dns/udp/a") && !taken("api/a") })
	if !readers(t, path) || !taken("in/a") {
		t.Error("the FIFO or the socket of Envoys too")
	}
}

// TestHolderThatDoesNotServe: if the started process ends immediately, the agent does not wait
// for it.
func TestHolderThatDoesNotServe(t *testing.T) {
	run := t.TempDir()
	k := Open(Options{Dir: run, Command: []string{"/bin/false"}})
	path := filepath.Join(run, "a")
	began := time.Now()
	if err := k.Hold(path, newFIFO(t, path)); err == nil || !strings.Contains(err.Error(), "has ended (exit status 1)") ||
		k.By(path) != "" || k.Holds(path) {
		t.Errorf("%v, held by %q", err, k.By(path))
	}
	if elapsed := time.Since(began); elapsed >= processStart {
		t.Errorf("it took %v", elapsed)
	}
	end(k)
}

// TestReleaseUnused: sockets that the next agent does not use are released, and others are not.
func TestReleaseUnused(t *testing.T) {
	open := opener(t)
	k := open()
	names := []string{"dns/udp/127.0.0.1:1", "dns/udp/127.0.0.1:2", "dns/udp/127.0.0.1:3", "xds/4"}
	for _, name := range names {
		f, _ := udpSocket(t)
		hold(t, k, name, f)
	}
	end(k)
	k = open()
	taken, _ := k.Take(names[0])
	defer taken.Close()
	f, _ := udpSocket(t)
	hold(t, k, names[1], f)
	if err := k.ReleaseUnused("dns/"); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		f, ok := k.Take(name)
		if ok {
			f.Close()
		}
		if ok != (i != 2) {
			t.Errorf("%s is held: %v", name, ok)
		}
		if err := k.Release(name); err != nil {
			t.Error(err)
		}
	}
	end(k)
}

// TestReplacedAndRemoved: a new file under a name replaces the held one. A deleted FIFO is
// released.
func TestReplacedAndRemoved(t *testing.T) {
	open := opener(t)
	dir, k := t.TempDir(), open()
	path, moved := filepath.Join(dir, "a"), filepath.Join(dir, "moved")
	hold(t, k, path, newFIFO(t, path))
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	hold(t, k, path, newFIFO(t, path))
	until(t, "the replaced one is given up", func() bool { return !readers(t, moved) })
	if !readers(t, path) {
		t.Fatal("the new one is not held")
	}
	end(k)
	k = open()
	if err := k.ReleaseRemoved(); err != nil || !readers(t, path) {
		t.Errorf("one that has a name: %v", err)
	}
	w, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(w)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(w, []byte("x")); err != nil {
		t.Errorf("held, and a writer gets %v", err)
	}
	if err := k.ReleaseRemoved(); err != nil {
		t.Error(err)
	}
	until(t, "its writer gets an error", func() bool { _, err := unix.Write(w, []byte("x")); return err == unix.EPIPE })
	end(k)
}

// TestNotHeld: unsuitable files are refused.
func TestNotHeld(t *testing.T) {
	run := t.TempDir()
	serving(t, run, ServeOptions{Stay: true})
	k := Open(Options{Dir: run})
	if err := Serve(t.Context(), run, ServeOptions{Stay: true}); err != ErrHeldElsewhere {
		t.Errorf("second: %v", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other := os.NewFile(uintptr(pair[1]), "")
	defer other.Close()
	writing, err := os.OpenFile(filepath.Join(run, "f"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	fifo := newFIFO(t, filepath.Join(run, "a"))
	writer, err := os.OpenFile(filepath.Join(run, "a"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*os.File{
		"connection": os.NewFile(uintptr(pair[0]), ""),
		"file":       writing,
		"writer":     writer,
	} {
		if err := k.Hold("/x", f); err == nil {
			t.Errorf("the keeper takes a %s", name)
		}
		if err := k.process.hold("/x", f); err == nil {
			t.Errorf("the process takes a %s", name)
		}
		k.process.release("/x")
		f.Close()
	}
	for _, name := range []string{"", "a\nb", "\x00", strings.Repeat("x", maxName+1)} {
		if err := k.Hold(name, fifo); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
	fifo.Close()
	end(k)
}

// FuzzRequest: invalid requests change nothing.
func FuzzRequest(f *testing.F) {
	f.Add([]byte{version, opHold, '/', 'a'})
	f.Add([]byte{version, opTake, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &server{held: map[string]*os.File{}, found: map[string]bool{},
			served: map[string]*net.UnixConn{}}
		_, give, err := s.answer(nil, b, nil)
		if give != nil || err == nil && (len(b) < 2 || b[0] != version || b[1] == opHold) {
			t.Errorf("%q is accepted", b)
		}
	})
}

// TestProcessIsStartedAgain: if a process ends because of an earlier one, another one is started.
func TestProcessIsStartedAgain(t *testing.T) {
	run := t.TempDir()
	lock, err := os.OpenFile(filepath.Join(run, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	tries := filepath.Join(run, "tries")
	k := Open(Options{Dir: run,
		Command: append([]string{"/bin/sh", "-c", `echo >>"$0"; shift; exec "$@"`, tries, ""}, selfCommand(t, run)...)})
	path := filepath.Join(run, "a")
	held := make(chan error)
	fifo := newFIFO(t, path)
	go func() { held <- k.Hold(path, fifo) }()
	until(t, "two tries", func() bool { b, _ := os.ReadFile(tries); return len(b) >= 2 })
	lock.Close() // held by the earlier process
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	fifo.Close()
	if !readers(t, path) {
		t.Error("nobody holds")
	}
	if err := k.Release(path); err != nil {
		t.Error(err)
	}
	end(k)
}
