package spool_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

const childVariable = "ACCESSLOG_TEST_SPOOL"

// TestSpoolChild is the process that TestSpoolKilled kills.
func TestSpoolChild(t *testing.T) {
	dir := os.Getenv(childVariable)
	if dir == "" {
		t.Skip("run by another test")
	}
	f := newForwarder(t, spool.ForwarderOptions{Address: away, Dial: noDial, Spool: spool.Options{Dir: dir}})
	go f.Run(context.Background())
	for i := 0; ; i += 10 {
		write(t, f, numbered(i, i+10))
		if i%1000 == 0 {
			if err := f.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
			fmt.Printf("flushed %d\n", i+10)
		}
	}
}

// TestSpoolKilled kills a process and checks that the next one sends the lines on disk, whole and
// in order.
func TestSpoolKilled(t *testing.T) {
	dir := spoolDir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestSpoolChild$")
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	flushed := 0
	for flushed < 20_000 {
		if _, err := fmt.Fscanf(out, "flushed %d\n", &flushed); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	c := newCollector(t)
	c.start()
	f := newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: spool.Options{Dir: dir}})
	s := f.Stats()
	if s.Spooled < uint64(flushed) {
		t.Errorf("%d flushed, %+v", flushed, s)
	}
	run(t, f)
	accesslogtest.Until(t, f, "sent", func(got accesslog.Stats) bool { return got.Written == s.Spooled })
	c.leave()
	c.check(int(s.Spooled))
}
