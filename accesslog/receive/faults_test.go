package receive

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/rotation"
)

// Test16FullDisk (case 16) checks that senders wait while the disk is full, that the file reports
// it, and that all lines are stored once when there is space.
func Test16FullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("accesslog-test", dir, "tmpfs", 0, "size=2m,mode=755"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "logs", "access.log")
	f := accesslogtest.OpenFile(t, rotation.Options{Path: path, Limits: rotation.Limits{MaxFileSize: 1}})
	r := receive(t, Options{To: f})
	const conns, each = 4, 10_000 // 12 MB, more than the kernel's buffers
	var wg sync.WaitGroup
	for id := range conns {
		c := r.dial()
		wg.Go(func() { flood(t, c, id, each) })
	}
	accesslogtest.Eventually(t, "the file is full", func() bool {
		return f.Stats().Health != nil && f.Stats().Retries > 4
	})
	before := r.Stats()
	if before.In == conns*each || before.InFlight == 0 || len(before.Dropped) > 0 {
		t.Errorf("the senders do not wait: %+v", before)
	}
	if got := accesslogtest.Stored(t, path); got != "" && got[len(got)-1] != '\n' {
		t.Errorf("the file ends with %q", got[max(0, len(got)-30):])
	}
	if err := syscall.Mount("accesslog-test", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	r.end()
	r.balance()
	if s := f.Stats(); s.Health != nil || s.LinesDropped != 0 {
		t.Errorf("stats %+v", s)
	}
	exactlyOnce(t, accesslogtest.Stored(t, path), conns, each)
}

// TestFullDiskDropsNewest checks that with DropNewest senders do not block, and that the receiver
// counts dropped lines.
func TestFullDiskDropsNewest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("accesslog-test", dir, "tmpfs", 0, "size=1m,mode=755"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "logs", "access.log")
	f := accesslogtest.OpenFile(t, rotation.Options{Path: path, OnFull: rotation.DropNewest})
	r := receive(t, Options{To: f})
	flood(t, r.dial(), 0, 20_000)
	r.end()
	r.balance()
	s, file := r.Stats(), f.Stats()
	got := accesslogtest.Stored(t, path)
	notes := strings.Count(got, "# ") // notes about dropped lines
	if s.In != 20_000 || s.Dropped[accesslog.CauseDiskFull] == 0 ||
		s.Dropped[accesslog.CauseDiskFull] != file.LinesDropped || uint64(strings.Count(got, "\n")-notes) != s.Written {
		t.Errorf("stats %+v, of the file %+v", s, file)
	}
}

// killVariable makes the test binary run receiveUntilKilled.
const killVariable = "ACCESSLOG_TEST_RECEIVER"

// receiveUntilKilled receives into a file and prints its address.
func receiveUntilKilled(path string) int {
	f, err := rotation.Open(rotation.Options{Path: path, Limits: rotation.Limits{MaxFileSize: 1}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r, err := New(Options{Listener: l, To: f})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(l.Addr())
	_ = r.Run(context.Background())
	return 1
}

// Test18Killed (case 18) kills a receiver under load. It leaves whole lines except the last, which
// gets its LF from the next process. The lock of the dead process does not block that.
func Test18Killed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "access.log")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), killVariable+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for id := range 8 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer c.Close()
			for n := 0; ; n++ {
				if _, err := io.WriteString(c, accesslogtest.Line(id, n)); err != nil {
					return
				}
			}
		})
	}
	accesslogtest.Eventually(t, "lines are stored", func() bool { // the receiver renames files in the meantime
		size := int64(0)
		names, _ := filepath.Glob(filepath.Dir(path) + "/*.log")
		for _, name := range names {
			if info, err := os.Stat(name); err == nil {
				size += info.Size()
			}
		}
		return size > 3<<20
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // killed
	wg.Wait()

	tail := accesslogtest.Stored(t, path)
	torn := uint64(0)
	if tail[len(tail)-1] != '\n' {
		torn = 1
	}
	f := accesslogtest.OpenFile(t, rotation.Options{Path: path, Limits: rotation.Limits{MaxFileSize: 1}})
	if s := f.Stats(); s.TornTails != torn {
		t.Errorf("%d torn lines, want %d", s.TornTails, torn)
	}
	r := receive(t, Options{To: f})
	send(t, r.dial(), "after\n")
	accesslogtest.Eventually(t, "the next receiver stores a line", func() bool { return r.Stats().Written == 1 })
	got := accesslogtest.Stored(t, path)
	if !strings.HasSuffix(got, "\nafter\n") {
		t.Errorf("the end is %q", got[len(got)-40:])
	}
	got = strings.TrimSuffix(got, "after\n")
	if torn == 1 {
		got = got[:strings.LastIndexByte(got[:len(got)-1], '\n')+1]
	}
	next := [8]int{}
	for line := range strings.Lines(got) {
		var c, n int
		if _, err := fmt.Sscanf(line, "%d %d", &c, &n); err != nil || line != accesslogtest.Line(c, n) || n != next[c] {
			t.Fatalf("line %.80q is not the next one", line)
		}
		next[c]++
	}
}

// TestManyConnections checks that thousands of connections beyond the limit do not affect others or
// memory.
func TestManyConnections(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	conns := int(min(10_000, limit.Cur*3/4))
	const most = 200
	to := &locked{to: &accesslogtest.Collector{}}
	r := receive(t, Options{To: to, MaxConns: most})
	first := r.dial()
	send(t, first, "first\n")
	accesslogtest.Eventually(t, "the first line is stored", func() bool { return r.Stats().Written == 1 })
	var all []net.Conn
	for i := range conns {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		all = append(all, c)
		if _, err := io.WriteString(c, "half"); err != nil && i < most-1 {
			t.Fatal(err)
		}
	}
	accesslogtest.Eventually(t, "all connections are accepted or refused", func() bool {
		s := r.Stats()
		return int(s.Accepted+s.Refused) == conns+1
	})
	send(t, first, "more\n")
	accesslogtest.Eventually(t, "the first connection is served", func() bool { return r.Stats().Written == 2 })
	if s := r.Stats(); s.Connections != most || int(s.Refused) != conns+1-most {
		t.Errorf("of %d: stats %+v", conns, s)
	}
	for _, c := range all {
		c.Close()
	}
	accesslogtest.Eventually(t, "the partial lines are stored", func() bool {
		s := r.Stats()
		return s.Unterminated == most-1 && s.Written == most+1
	})
	if got := to.to.(*accesslogtest.Collector).Bytes(); bytes.Count(got, []byte("half\n")) != most-1 {
		t.Errorf("stored %.100q", got)
	}
}
