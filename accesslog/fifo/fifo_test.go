package fifo

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
)

// sink is a Destination that records lines, and blocks while shut is set.
type sink struct {
	mu   sync.Mutex
	b    bytes.Buffer
	shut bool
}

func (s *sink) Write(ctx context.Context, batch []byte) (int, error) {
	for {
		s.mu.Lock()
		if !s.shut {
			defer s.mu.Unlock()
			return s.b.Write(batch)
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *sink) set(shut bool) { s.mu.Lock(); defer s.mu.Unlock(); s.shut = shut }

// startPipes opens and runs pipes. stop ends them.
func startPipes(t testing.TB, o Options) (ps *Pipes, stop func()) {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Linger == 0 {
		o.Linger = time.Millisecond
	}
	ps, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ps.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	accesslogtest.Eventually(t, "Run", func() bool { ps.mu.Lock(); defer ps.mu.Unlock(); return ps.ran })
	return ps, stop
}

func pipeDir(t testing.TB) string { return filepath.Join(t.TempDir(), "pipes") }

func setOne(t testing.TB, ps *Pipes, path string, to accesslog.Destination) {
	t.Helper()
	if errs := ps.Set("web", []Pipe{{Path: path, UID: os.Geteuid(), GID: -1, To: to,
		Labels: map[string]string{"backend": "b"}}}); errs[0] != nil {
		t.Fatal(errs[0])
	}
}

// openWriter opens a FIFO like Envoy, which blocks without a reader.
func openWriter(t testing.TB, path string) *os.File {
	t.Helper()
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), path)
}

func put(t testing.TB, f *os.File, s string) {
	t.Helper()
	if _, err := f.WriteString(s); err != nil {
		t.Fatal(err)
	}
}

// holding keeps descriptors like a process that outlives this one.
type holding struct {
	mu    sync.Mutex
	files map[string]int
}

func (h *holding) Hold(path string, f *os.File) error {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, ok := h.files[path]; ok {
		unix.Close(old)
	}
	h.files[path] = fd
	return err
}

func (h *holding) Release(path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	unix.Close(h.files[path])
	delete(h.files, path)
	return nil
}
func (h *holding) By(string) string { return "the test" }

func newHolding(t testing.TB) *holding {
	h := &holding{files: map[string]int{}}
	t.Cleanup(func() {
		for _, fd := range h.files {
			unix.Close(fd)
		}
	})
	return h
}

func TestPipeLinesAreHandedOn(t *testing.T) {
	dir, to := pipeDir(t), &sink{}
	ps, _ := startPipes(t, Options{Dir: dir, Group: -1})
	path := filepath.Join(dir, "a.log")
	setOne(t, ps, path, to)
	w := openWriter(t, path)
	put(t, w, "one\ntwo\nthr")
	accesslogtest.Eventually(t, "two lines", func() bool { return to.String() == "one\ntwo\n" })
	put(t, w, "ee\n")
	accesslogtest.Eventually(t, "the third", func() bool { return to.String() == "one\ntwo\nthree\n" })
	put(t, w, "half")
	w.Close()
	accesslogtest.Eventually(t, "the half line of a writer that is gone", func() bool {
		return to.String() == "one\ntwo\nthree\nhalf\n"
	})
	s := balanced(t, ps, path, 4)
	if s.Written != 4 || s.Unterminated != 1 || s.Health != "" || s.Owner != "web" || s.Writer {
		t.Errorf("stats: %+v", s)
	}
	ps.Gone("web")
	accesslogtest.Eventually(t, "the FIFO is removed", func() bool { names, _ := os.ReadDir(dir); return len(names) == 0 })
}

// TestPipeStaysWhileItIsWritten checks that an unwanted FIFO is still read, and removed only after
// its last writer closes it.
func TestPipeStaysWhileItIsWritten(t *testing.T) {
	dir, to := pipeDir(t), &sink{}
	ps, _ := startPipes(t, Options{Dir: dir, Group: -1})
	path := filepath.Join(dir, "a")
	setOne(t, ps, path, to)
	w1, w2 := openWriter(t, path), openWriter(t, path)
	ps.Set("web", nil)
	put(t, w1, "1\n")
	w1.Close()
	accesslogtest.Eventually(t, "the first", func() bool { return to.String() == "1\n" })
	put(t, w2, "2\n")
	accesslogtest.Eventually(t, "the second", func() bool { return to.String() == "1\n2\n" })
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	w2.Close()
	accesslogtest.Eventually(t, "removal", func() bool {
		_, err := os.Lstat(path)
		return os.IsNotExist(err) && len(ps.Stats()) == 0
	})
}

// TestPipeNewWriter checks that a partial line of a dead writer is separated from the first line of
// the next, and that a hot restart inserts no LF.
func TestPipeNewWriter(t *testing.T) {
	dir, to := pipeDir(t), &sink{}
	ps, err := Open(Options{Dir: dir, Group: -1})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a")
	setOne(t, ps, path, to)
	w := openWriter(t, path)
	put(t, w, "first\nha")
	w.Close()
	ps.NewWriter("web")
	w = openWriter(t, path)
	put(t, w, "second\nbeg")
	ps.NewWriter("web") // the old process is alive: a hot restart
	put(t, w, "un\n")
	if err := ps.Flush(context.Background(), "web"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if got := to.String(); got != "first\nha\nsecond\nbegun\n" {
		t.Errorf("got %q", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := ps.Run(ctx); err != nil {
		t.Error(err)
	}
}

// TestPipeRestart checks that the next reader finds all unread data, including a partial line.
func TestPipeRestart(t *testing.T) {
	dir, to, h := pipeDir(t), &sink{}, newHolding(t)
	o := Options{Dir: dir, Group: -1, Holder: h}
	ps, stop := startPipes(t, o)
	path := filepath.Join(dir, "a")
	setOne(t, ps, path, to)
	w := openWriter(t, path)
	defer w.Close()
	put(t, w, "1\n2")
	accesslogtest.Eventually(t, "a line", func() bool { return to.String() == "1\n" })
	stop()
	put(t, w, "2\n3")
	o.Found = func(p string, labels map[string]string) accesslog.Destination {
		if p != path || labels["backend"] != "b" {
			t.Errorf("found %s %v", p, labels)
		}
		return to
	}
	startPipes(t, o)
	put(t, w, "3\n")
	accesslogtest.Eventually(t, "the unread lines", func() bool { return to.String() == "1\n22\n33\n" })
}

// TestPipeSlowDestination checks that the FIFO is read while its destination blocks, and that lines
// above the memory limit are dropped and counted.
func TestPipeSlowDestination(t *testing.T) {
	dir, to := pipeDir(t), &sink{shut: true}
	ps, _ := startPipes(t, Options{Dir: dir, Group: -1, MaxMemory: 1 << 20, Slow: time.Millisecond})
	path := filepath.Join(dir, "a")
	setOne(t, ps, path, to)
	w := openWriter(t, path)
	defer w.Close()
	line := strings.Repeat("x", 1023) + "\n"
	for range 8 << 10 { // 8 MiB: the loop ends only if the FIFO is read
		put(t, w, line)
	}
	accesslogtest.Eventually(t, "a drop", func() bool {
		s := ps.Stats()[path]
		return s.Dropped[accesslog.CauseDiskFull] > 0 && s.Health != ""
	})
	to.set(false)
	accesslogtest.Eventually(t, "all counted", func() bool {
		s := ps.Stats()[path]
		return s.In == 8<<10 && s.InFlight == 0 && s.In == s.Written+s.Dropped[accesslog.CauseDiskFull] && s.Health == ""
	})
	if got := uint64(strings.Count(to.String(), line)); got != ps.Stats()[path].Written {
		t.Errorf("%d lines, written %d", got, ps.Stats()[path].Written)
	}
}

// TestPipeFileInItsPlace checks that a file created by Envoy is exchanged under load, and that its
// lines and later ones are delivered once.
func TestPipeFileInItsPlace(t *testing.T) {
	dir, to := pipeDir(t), &sink{}
	reopen := make(chan string, 1)
	ps, _ := startPipes(t, Options{Dir: dir, Group: -1, Reopen: func(o string) { reopen <- o }})
	path := filepath.Join(dir, "a")
	old := openWriter(t, path)
	put(t, old, "1\n")
	setOne(t, ps, path, to)
	if o := <-reopen; o != "web" {
		t.Errorf("reopen %q", o)
	}
	put(t, old, "2\n3")
	accesslogtest.Eventually(t, "the lines of the file", func() bool { return to.String() == "1\n2\n" })
	old.Close()
	w := openWriter(t, path)
	defer w.Close()
	put(t, w, "4\n")
	accesslogtest.Eventually(t, "all lines", func() bool {
		return strings.Contains(to.String(), "3\n") && strings.Contains(to.String(), "4\n")
	})
	accesslogtest.Eventually(t, "the file is removed", func() bool {
		n, _ := filepath.Glob(dir + "/.a.left*")
		return len(n) == 0
	})
}

func TestPipeRefused(t *testing.T) {
	dir := pipeDir(t)
	ps, _ := startPipes(t, Options{Dir: dir, Group: -1, MaxPerOwner: 1})
	for _, err := range []error{
		os.Mkdir(dir+"/dir", 0o700), os.Symlink("/dev/null", dir+"/link"), unix.Mknod(dir+"/sock", unix.S_IFSOCK|0o600, 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"dir":  "a directory has the name",
		"link": "a symbolic link",
		"sock": "a socket",
		"../x": "is not in",
		".x":   "use letters",
		"a b":  "use letters",
	} {
		errs := ps.Set("web", []Pipe{{Path: dir + "/" + name, UID: os.Geteuid(), To: &sink{}}})
		if errs[0] == nil || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: %v, want %q", name, errs[0], want)
		}
	}
	errs := ps.Set("web",
		[]Pipe{{Path: dir + "/1", UID: os.Geteuid(), To: &sink{}}, {Path: dir + "/2", UID: os.Geteuid(), To: &sink{}}})
	if errs[0] != nil || errs[1] == nil {
		t.Errorf("limit: %v", errs)
	}
	if errs := ps.Set("other", []Pipe{{Path: dir + "/1", UID: os.Geteuid(), To: &sink{}}}); errs[0] == nil {
		t.Error("two owners share a FIFO")
	}
	for mode, want := range map[os.FileMode]string{0o777: "chmod go-w", 0o755 | os.ModeSticky: "chmod -t"} {
		bad := t.TempDir()
		if err := os.Chmod(bad, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{Dir: bad}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("mode %v: %v, want %q", mode, err, want)
		}
	}
	if _, err := Open(Options{Dir: filepath.Join(t.TempDir(), "no", "pipes")}); err == nil {
		t.Error("a directory below a missing one")
	}
	if _, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("twice: %v", err)
	}
}
