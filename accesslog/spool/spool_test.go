package spool_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// away is a local address without a listener: the discard port.
const away = "127.0.0.1:9"

func noDial(context.Context, string, string) (net.Conn, error) { return nil, errors.New("not there") }

func segments(t testing.TB, dir, suffix string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// fill stores n lines in a spool.
func fill(t testing.TB, dir string, n int) {
	t.Helper()
	f := newForwarder(t, spool.ForwarderOptions{Address: away, Dial: noDial, Spool: spool.Options{Dir: dir}})
	stop := run(t, f)
	for i := 0; i < n; i += 1000 {
		write(t, f, numbered(i, min(i+1000, n)))
	}
	stop()
	if s := f.Stats(); s.Spooled != uint64(n) || s.InFlight != 0 {
		t.Fatalf("%+v", s)
	}
	if _, err := f.Write(context.Background(), []byte("x\n")); !errors.Is(err, spool.ErrClosed) {
		t.Error(err)
	}
}

// TestSpoolRestart checks that the next forwarder sends the lines of a full queue, and that file
// modes are restrictive.
func TestSpoolRestart(t *testing.T) {
	dir := spoolDir(t)
	const n = 50_000 // two segments
	fill(t, dir, n)
	for path, mode := range map[string]os.FileMode{dir: 0o700, segments(t, dir, ".spool")[0]: 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Error(path, st.Mode(), err)
		}
	}
	c := newCollector(t)
	c.start()
	f := newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: spool.Options{Dir: dir}})
	if _, err := spool.NewForwarder(spool.ForwarderOptions{Address: c.addr,
		Spool: spool.Options{Dir: dir}}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
	stop := run(t, f)
	write(t, f, numbered(n, n+10))
	c.await(string(numbered(n+9, n+10)))
	if repeated := c.check(n + 10); repeated > 0 {
		t.Errorf("%d repeated", repeated)
	}
	accesslogtest.Until(t, f, "empty", func(s accesslog.Stats) bool { return s.Written == n+10 && s.SpoolBytes == 0 })
	stop()
	if left := segments(t, dir, ".spool"); len(left) > 0 {
		t.Error(left)
	}
}

// TestSpoolFlippedByte checks that the lines after a damaged byte are lost and counted up to the
// next segment, and that the file is kept.
func TestSpoolFlippedByte(t *testing.T) {
	dir := spoolDir(t)
	const n = 60_000
	fill(t, dir, n)
	path := segments(t, dir, ".spool")[0]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCollector(t)
	c.start()
	f := newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: spool.Options{Dir: dir}})
	stop := run(t, f)
	c.await(string(numbered(n-1, n)))
	s := accesslogtest.Until(t, f, "empty", func(s accesslog.Stats) bool { return s.Spooled == 0 && s.InFlight == 0 })
	stop()
	lost := s.Dropped[accesslog.CauseSpoolBad]
	if lost == 0 || lost > n/2 || s.Written+lost != n || len(c.got) != int(s.Written) || !slices.IsSorted(c.got) ||
		c.missing() != lost {
		t.Errorf("%d lines, %+v", len(c.got), s)
	}
	if bad := segments(t, dir, ".bad"); len(bad) != 1 {
		t.Error(bad)
	}
}

// TestSpoolTornTail checks that a partial record at the end of a spool is removed, and that later
// lines are whole.
func TestSpoolTornTail(t *testing.T) {
	dir := spoolDir(t)
	fill(t, dir, 1000)
	path := segments(t, dir, ".spool")[0]
	st, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, st.Size()-7)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := newCollector(t)
	c.start()
	f := newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: spool.Options{Dir: dir}})
	run(t, f)
	write(t, f, numbered(5000, 5001))
	c.await(string(numbered(5000, 5001)))
	had := len(c.got) - 1
	if had == 0 || had >= 1000 || !bytes.Equal([]byte(strings.Join(c.got[:had], "")), numbered(0, had)) {
		t.Errorf("%d lines", had)
	}
}

// TestSpoolLimit checks that a full spool drops lines by its policy, counts them, and stays within
// its limit.
func TestSpoolLimit(t *testing.T) {
	const n, limit = 40_000, 4 << 20 // 12 MB
	for _, policy := range []spool.Policy{spool.DropOldest, spool.DropNewest} {
		dir := spoolDir(t)
		opts := spool.Options{Dir: dir, MaxBytes: limit, OnFull: policy, MaxMemory: 1 << 20}
		f := newForwarder(t, spool.ForwarderOptions{Address: away, Dial: noDial, Spool: opts})
		stop := run(t, f)
		for i := 0; i < n; i += 100 {
			write(t, f, numbered(i, i+100))
			if s := f.Stats(); s.SpoolBytes > limit {
				t.Fatalf("%+v", s)
			}
		}
		stop()
		s := f.Stats()
		accesslogtest.Balance(t, s)
		if s.In != n || s.Dropped[accesslog.CauseSpoolFull] == 0 || s.Spooled < 5000 {
			t.Errorf("%s: %+v", policy, s)
		}
		c := newCollector(t)
		c.start()
		f = newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: opts})
		run(t, f)
		accesslogtest.Until(t, f, "empty", func(got accesslog.Stats) bool { return got.Written == s.Spooled })
		c.leave()
		if got := c.missing(); got != s.Dropped[accesslog.CauseSpoolFull]+s.Dropped[accesslog.CauseStopped] {
			t.Errorf("%s: markers report %d lines: %+v", policy, got, s)
		}
		first, last := c.got[0], c.got[len(c.got)-1]
		if oldest := first == string(numbered(0, 1)); oldest != (policy == spool.DropNewest) ||
			(last == string(numbered(n-1, n))) == oldest {
			t.Errorf("%s: from %.12q to %.12q", policy, first, last)
		}
	}
}

// TestSpoolBlock checks that with Block a writer waits until the collector has made space, and no
// line is lost.
func TestSpoolBlock(t *testing.T) {
	c := newCollector(t)
	f := newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: spool.Options{Dir: spoolDir(t),
		MaxBytes: 2 << 20, OnFull: spool.Block, MaxMemory: 1 << 20}})
	run(t, f)
	const n = 20_000
	ended := make(chan error, 1)
	go func() {
		for i := 0; i < n; i += 100 {
			if _, err := f.Write(context.Background(), numbered(i, i+100)); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	accesslogtest.Until(t, f, "full", func(s accesslog.Stats) bool { return strings.Contains(s.Health, "is full") })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if taken, err := f.Write(ctx, []byte("x\n")); taken != 0 || !errors.Is(err, context.Canceled) {
		t.Error(taken, err)
	}
	c.start()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	c.await(string(numbered(n-1, n)))
	c.check(n)
	accesslogtest.Until(t, f, "acknowledged", func(s accesslog.Stats) bool { return s.Written == n && s.Dropped == nil })
}

// TestSpoolAge checks that only lines above the maximum age are dropped.
func TestSpoolAge(t *testing.T) {
	dir := spoolDir(t)
	synctest.Test(t, func(t *testing.T) {
		f := newForwarder(t,
			spool.ForwarderOptions{Address: away, Dial: noDial, Spool: spool.Options{Dir: dir, MaxAge: time.Hour}})
		stop := run(t, f)
		write(t, f, numbered(0, 10))
		time.Sleep(40 * time.Minute)
		write(t, f, numbered(10, 30))
		time.Sleep(10 * time.Minute)
		if s := f.Stats(); s.Spooled != 30 || s.SpoolOldest < 2999 || s.SpoolOldest > 3001 {
			t.Errorf("%+v", s)
		}
		time.Sleep(15 * time.Minute)
		if s := f.Stats(); s.Spooled != 20 || s.Dropped[accesslog.CauseSpoolAge] != 10 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Hour)
		if s := f.Stats(); s.Spooled != 0 || s.Dropped[accesslog.CauseSpoolAge] != 30 || s.SpoolBytes != 0 {
			t.Errorf("%+v", s)
		}
		stop()
	})
}

// TestSpoolFullDisk checks that on a full disk lines are dropped by policy without blocking, and
// that new lines are stored once there is space.
func TestSpoolFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	for _, policy := range []spool.Policy{spool.DropOldest, spool.DropNewest} {
		dir := t.TempDir()
		if err := syscall.Mount("spool-test", dir, "tmpfs", 0, "size=2m"); err != nil {
			t.Skipf("no file system can be mounted here: %v", err)
		}
		t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
		f := newForwarder(t,
			spool.ForwarderOptions{Address: away, Dial: noDial, Spool: spool.Options{Dir: filepath.Join(dir, "s"),
				MaxBytes: 64 << 20, OnFull: policy, MaxMemory: 256 << 10}})
		stop := run(t, f)
		const n = 20_000
		for i := 0; i < n; i += 100 {
			write(t, f, numbered(i, i+100))
		}
		s := f.Stats()
		accesslogtest.Balance(t, s)
		if s.In != n || s.Dropped[accesslog.CauseDiskFull] == 0 {
			t.Errorf("%s: %+v", policy, s)
		}
		if err := syscall.Mount("spool-test", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
			t.Fatal(err)
		}
		accesslogtest.Until(t, f, "well", func(s accesslog.Stats) bool {
			return s.InFlight == 0 && !strings.Contains(s.Health, "written")
		})
		before := f.Stats().Spooled
		write(t, f, numbered(0, 100))
		accesslogtest.Until(t, f, "spooled", func(s accesslog.Stats) bool { return s.Spooled == before+100 })
		stop()
	}
}

// TestSpoolLinks checks that links of other users are not followed, neither as the directory nor in
// it.
func TestSpoolLinks(t *testing.T) {
	dir := spoolDir(t)
	fill(t, dir, 10)
	link := dir + "-link"
	if err := errors.Join(os.Symlink(dir, link), os.Lchown(link, 12345, -1)); err != nil {
		t.Skipf("only root can give a link away: %v", err)
	}
	if _, err := spool.NewForwarder(spool.ForwarderOptions{Address: away,
		Spool: spool.Options{Dir: link}}); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Error(err)
	}
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, "cursor"))
	os.Symlink(victim, filepath.Join(dir, "cursor.tmp"))
	f, err := spool.NewForwarder(spool.ForwarderOptions{Address: away, Spool: spool.Options{Dir: dir}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(victim); string(got) != "x" {
		t.Errorf("%q", got)
	}
}

// FuzzSegment checks that opening and sending any segment does not panic, and that the counters add
// up.
func FuzzSegment(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "s")
	fill(f, dir, 20)
	good, err := os.ReadFile(segments(f, dir, ".spool")[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add(append(slices.Clone(good), good...))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := filepath.Join(t.TempDir(), "s")
		os.Mkdir(dir, 0o700)
		if err := os.WriteFile(filepath.Join(dir, "00000000000000000001.spool"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		fw, err := spool.NewForwarder(spool.ForwarderOptions{Address: away, Spool: spool.Options{Dir: dir},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				go func() { // reads until the end
					buf := make([]byte, 4096)
					for {
						if _, err := there.Read(buf); err != nil {
							return
						}
					}
				}()
				return here, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, fw)
		accesslogtest.Until(t, fw, "empty", func(s accesslog.Stats) bool { return s.Spooled == 0 && s.InFlight == 0 })
		stop()
	})
}

// FuzzCursor checks that parseCursor accepts only encoded cursors.
func FuzzCursor(f *testing.F) {
	f.Add(spool.AppendCursor(nil, 77))
	f.Fuzz(func(t *testing.T, data []byte) {
		if done, err := spool.ParseCursor(data); err == nil && !bytes.Equal(spool.AppendCursor(nil, done), data) {
			t.Errorf("%d", done)
		}
	})
}
