package fifo

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/rotation"
)

// pipeToFile connects a FIFO to a rotated file below a directory, and returns a writer.
func pipeToFile(t *testing.T, dir string, o Options,
	r rotation.Options) (ps *Pipes, f *rotation.File, path string, w *os.File) {
	t.Helper()
	r.Path = filepath.Join(dir, "logs", "access.log")
	f = accesslogtest.OpenFile(t, r)
	o.Dir, o.Group = pipeDir(t), -1
	ps, stop := startPipes(t, o)
	t.Cleanup(stop)
	path = filepath.Join(o.Dir, "a")
	setOne(t, ps, path, f)
	w = openWriter(t, path)
	t.Cleanup(func() { w.Close() })
	return ps, f, path, w
}

// balanced waits until all lines of a FIFO are stored or dropped, and returns the counters.
func balanced(t *testing.T, ps *Pipes, path string, lines uint64) (s Status) {
	t.Helper()
	accesslogtest.Eventually(t, "all lines are stored or dropped", func() bool {
		s = ps.Stats()[path]
		return s.In == lines && s.InFlight == 0
	})
	dropped := uint64(0)
	for _, n := range s.Dropped {
		dropped += n
	}
	if s.In != s.Written+dropped {
		t.Errorf("in = written + dropped does not hold: %+v", s)
	}
	return s
}

// TestPipeFullDisk checks that the writer is not blocked by a full disk. Lines that fit into memory
// are stored once, in order, when there is space again; other lines are dropped and counted.
func TestPipeFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	for name, c := range map[string]struct{ megabytes, memory int }{
		"for a while": {4, 8 << 20},
		"for good":    {8, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("accesslog-test", dir, "tmpfs", 0, "size=2m,mode=755"); err != nil {
				t.Skipf("no file system can be mounted here: %v", err)
			}
			t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
			ps, f, path, w := pipeToFile(t, dir, Options{MaxMemory: c.memory, Slow: time.Millisecond}, rotation.Options{})
			var want bytes.Buffer
			n := 0
			for ; want.Len() < c.megabytes<<20; n++ {
				line := accesslogtest.Line(1, n)
				want.WriteString(line)
				put(t, w, line) // must not block, though the destination does
			}
			accesslogtest.Eventually(t, "the disk is full", func() bool {
				return f.Stats().Retries > 0 && strings.Contains(ps.Stats()[path].Health, "no space left on device")
			})
			if name == "for good" {
				accesslogtest.Eventually(t, "drops", func() bool {
					s := ps.Stats()[path]
					return s.Dropped[accesslog.CauseDiskFull] > 0 && strings.Contains(s.Health, "lines are dropped (disk-full)")
				})
			}
			if err := syscall.Mount("accesslog-test", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
				t.Fatal(err)
			}
			s := balanced(t, ps, path, uint64(n))
			got := accesslogtest.Stored(t, filepath.Join(dir, "logs", "access.log"))
			if name == "for a while" {
				if got != want.String() || s.Written != uint64(n) {
					t.Errorf("%d of %d bytes are stored: %+v", len(got), want.Len(), s)
				}
				return
			}
			var reported uint64
			accesslogtest.Eventually(t, "the marker", func() bool {
				got, reported = withoutMarkers(t, accesslogtest.Stored(t, filepath.Join(dir, "logs", "access.log")))
				s = ps.Stats()[path]
				return reported >= s.Dropped[accesslog.CauseDiskFull] && s.Health == ""
			})
			if uint64(strings.Count(got, "\n")) != s.Written || s.Dropped[accesslog.CauseDiskFull] == 0 ||
				reported != s.Dropped[accesslog.CauseDiskFull] {
				t.Errorf("%d lines are stored, markers report %d: %+v", strings.Count(got, "\n"), reported, s)
			}
			sent := map[string]bool{}
			for line := range strings.Lines(want.String()) {
				sent[line] = true
			}
			for line := range strings.Lines(got) {
				if !sent[line] {
					t.Fatalf("torn: %q", line)
				}
			}
		})
	}
}

// withoutMarkers removes the markers of dropped lines, and returns how many lines they report.
func withoutMarkers(t *testing.T, stored string) (lines string, reported uint64) {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(stored) {
		var n uint64
		if !strings.HasPrefix(line, "# ") {
			out.WriteString(line)
		} else if _, err := fmt.Sscanf(line, "# %d lines (", &n); err != nil {
			t.Errorf("marker %q: %v", line, err)
		}
		reported += n
	}
	return out.String(), reported
}

// TestPipeIOError checks that EIO, as from a broken disk, does not block the writer and is
// reported.
func TestPipeIOError(t *testing.T) {
	for name, onFull := range map[string]rotation.OnFull{"block": rotation.Block, "drop": rotation.DropNewest} {
		t.Run(name, func(t *testing.T) {
			dir := brokenDisk(t)
			ps, f, path, w := pipeToFile(t, dir.path, Options{MaxMemory: 1 << 20, Slow: time.Millisecond,
				StopTimeout: 10 * time.Millisecond}, rotation.Options{OnFull: onFull})
			put(t, w, "good\n")
			accesslogtest.Eventually(t, "the first line", func() bool { return ps.Stats()[path].Written == 1 })
			dir.breakIt(t)
			line := strings.Repeat("x", 1023) + "\n"
			const n = 8 << 10
			for range n {
				put(t, w, line)
			}
			accesslogtest.Eventually(t, "the error is reported", func() bool {
				// The first drop may have another cause: a slow destination.
				put(t, w, line)
				s, health := ps.Stats()[path], f.Stats().Health
				reported := onFull != rotation.Block || strings.Contains(s.Health, "input/output error")
				return reported && s.Dropped[accesslog.CauseDiskFull] > 0 && health != nil &&
					strings.Contains(health.Error(), "input/output error")
			})
			if s := ps.Stats()[path]; s.Written != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

type disk struct{ path string }

// brokenDisk returns an ext4 file system that can be broken.
func brokenDisk(t *testing.T) disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	image, at := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, command := range [][]string{
		{"truncate", "-s", "32M", image}, {"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, at},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v cannot be run here: %v %s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	return disk{at}
}

// breakIt makes each access fail with EIO (EXT4_IOC_SHUTDOWN).
func (d disk) breakIt(t *testing.T) {
	t.Helper()
	f, err := os.Open(d.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const shutdown, withoutLog = 0x8004587d, 2
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, withoutLog); err != nil {
		t.Skipf("the file system cannot be broken here: %v", err)
	}
}

// TestPipeHostileBytes checks that any data written to a FIFO is stored unchanged, in lines of at
// most 1 MiB.
func TestPipeHostileBytes(t *testing.T) {
	for name, in := range map[string]string{
		"16 MiB without LF": strings.Repeat("x", 16<<20), "NUL": "a\x00b\n\x00\n", "not UTF-8": "\xff\xfe\xc3\x28\n",
		"CR": "with\r\nand\rwithout\n", "empty lines": "\n\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir, to := pipeDir(t), &sink{}
			ps, _ := startPipes(t, Options{Dir: dir, Group: -1, Rest: 2 * time.Millisecond})
			path := filepath.Join(dir, "a")
			setOne(t, ps, path, to)
			w := openWriter(t, path)
			put(t, w, in)
			w.Close()
			want, oversize, unterminated := accesslogtest.Naive([]byte(in), accesslog.DefaultMaxLine)
			s := balanced(t, ps, path, uint64(bytes.Count(want, []byte{'\n'})))
			if to.String() != string(want) || s.Oversize != oversize || s.Unterminated != unterminated {
				t.Errorf("%d bytes are stored, want %d; %+v", len(to.String()), len(want), s)
			}
		})
	}
}

// TestPipeRemovedFromOutside checks that a removed or replaced FIFO is restored without a call of
// Set, that its process is asked to reopen its logs, and that no line is lost.
func TestPipeRemovedFromOutside(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"removed": os.Remove,
		"renamed": func(path string) error { return os.Rename(path, path+".1") },
		"a file in its place": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.WriteFile(path, []byte("in a file\n"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, to, h := pipeDir(t), &sink{}, newHolding(t)
			reopen := make(chan string, 1)
			ps, _ := startPipes(t, Options{Dir: dir, Group: -1, Holder: h, Reopen: func(o string) { reopen <- o }})
			path := filepath.Join(dir, "a")
			setOne(t, ps, path, to)
			old := openWriter(t, path)
			put(t, old, "1\n")
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			if owner := <-reopen; owner != "web" {
				t.Errorf("asked: %s", owner)
			}
			put(t, old, "2\n") // before it opens the new FIFO
			w := openWriter(t, path)
			put(t, w, "3\n")
			old.Close()
			want := 3
			if strings.HasPrefix(name, "a file") {
				want = 4
			}
			accesslogtest.Eventually(t, "all lines", func() bool { return strings.Count(to.String(), "\n") == want })
			if got := to.String(); !strings.Contains(got, "1\n") || !strings.Contains(got, "2\n") ||
				!strings.Contains(got, "3\n") {
				t.Errorf("got %q", got)
			}
			w.Close()
		})
	}
}

// TestPipeDirectoryIsALink checks that the FIFO directory must not be another user's symbolic link.
func TestPipeDirectoryIsALink(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Symlink(t.TempDir(), dir+"/link"), os.Lchown(dir+"/link", 12345, -1)); err != nil {
		t.Skipf("only root can give a link away: %v", err)
	}
	if _, err := Open(Options{Dir: dir + "/link"}); err == nil ||
		!strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("error %v", err)
	}
}

// TestPipeLockOfADeadProcess checks that the lock of the directory ends with its process.
func TestPipeLockOfADeadProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := pipeDir(t)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), readerVariable+"="+dir+":"+filepath.Join(t.TempDir(), "logs", "out.log"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Open in this process only afterwards: an attempt holds the lock briefly, and the other process
	// would fail.
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "open\n" {
		t.Errorf("the other process has not opened the directory: %q, %v", line, err)
	}
	if ps, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the lock was not held: %v", err)
		if err == nil {
			ps.close()
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	ps, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ps.close()
}
