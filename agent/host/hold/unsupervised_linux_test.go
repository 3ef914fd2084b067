package hold

import (
	"context"
	"net"
	"path/filepath"
	"testing"
)

// TestSocketWithoutASupervisedHolder: a socket for a supervised holder waits for one without an
// error, and without a new process.
func TestSocketWithoutASupervisedHolder(t *testing.T) {
	run := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(run, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k := Open(Options{Dir: run, Command: []string{"/bin/false"}})
	name := APIPrefix + "unix/s"
	if err := k.Hold(name, f); err != nil || k.By(name) != "" {
		t.Fatalf("without a holder: %v, held by %q", err, k.By(name))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- k.Run(ctx) }()
	serving(t, run, ServeOptions{Stay: true})
	until(t, "the supervised holder has the socket", func() bool { return k.By(name) != "" })
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
