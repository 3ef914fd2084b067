package hold

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const holderVariable = "HOLD_TEST_HOLDER"

func holdUntilIdle(dir string) int {
	// On a busy machine, the agent may need a while to connect.
	err := Serve(context.Background(), dir, ServeOptions{Idle: time.Second})
	if err != nil && err != ErrHeldElsewhere {
		return 1
	}
	return 0
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !ok(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("after a minute not yet: %s", what)
		}
	}
}

// selfCommand returns the command line of this test program as a holder process.
func selfCommand(t *testing.T, dir string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", holderVariable + "=" + dir, self}
}

// newFIFO creates a FIFO and opens it for reading.
func newFIFO(t *testing.T, path string) *os.File {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return openFIFO(t, path)
}

func openFIFO(t *testing.T, path string) *os.File {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), path)
}

// readers reports whether a process has a FIFO open for reading: without one, the kernel refuses
// a nonblocking writer.
func readers(t *testing.T, path string) bool {
	t.Helper()
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	return true
}

// hold makes a holder hold a file, and closes the file.
func hold(t *testing.T, k *Holder, name string, f *os.File) {
	t.Helper()
	if err := k.Hold(name, f); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// end closes a Holder like the end of its agent.
func end(k *Holder) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = k.Run(ctx)
}

// opener returns a function that opens a Holder, once per call, like successive agents.
func opener(t *testing.T) func() *Holder {
	run := t.TempDir()
	return func() *Holder { return Open(Options{Dir: run, Command: selfCommand(t, run)}) }
}

// serving runs a holder in this process until the returned function is called, or the test ends.
func serving(t *testing.T, dir string, o ServeOptions) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	o.Ready = func() { close(ready) }
	go func() { ended <- Serve(ctx, dir, o) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("the holder has ended: %v", err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("holder: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// pid returns the process that a Holder is connected to; 0: none.
func pid(k *Holder) int {
	k.process.state.Lock()
	defer k.process.state.Unlock()
	return k.process.pid
}

// udpSocket returns a UDP socket of a free port, and its address.
func udpSocket(t *testing.T) (*os.File, string) {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.(*net.UDPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	return f, c.LocalAddr().String()
}
