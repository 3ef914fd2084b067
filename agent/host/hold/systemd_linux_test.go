package hold

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeSystemd behaves like systemd 252: it silently closes descriptors for which its store has no
// space. It rejects descriptors without FDPOLL=0, because systemd drops those after a hangup.
type fakeSystemd struct {
	path string
	max  int

	mu     sync.Mutex
	stored []storedFD
}

type storedFD struct {
	name string
	fd   int
}

func newFakeSystemd(t *testing.T, most int) *fakeSystemd {
	dir, err := os.MkdirTemp("", "hold")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeSystemd{path: filepath.Join(dir, "notify"), max: most}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b, oob := make([]byte, 4096), make([]byte, 4096)
		for {
			n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
			if err != nil {
				return
			}
			s.message(string(b[:n]), oob[:oobn])
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-ended
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, x := range s.stored {
			unix.Close(x.fd)
		}
		os.RemoveAll(dir)
	})
	return s
}

func (s *fakeSystemd) message(text string, oob []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		fields[key] = value
	}
	var fds []int
	if ms, err := unix.ParseSocketControlMessage(oob); err == nil && len(ms) > 0 {
		fds, _ = unix.ParseUnixRights(&ms[0])
	}
	name := fields["FDNAME"]
	if len(name) > 255 || strings.ContainsAny(name, ":\n \x00") {
		name = ""
	}
	switch {
	case fields["FDSTOREREMOVE"] == "1" && name != "":
		hold := s.stored[:0]
		for _, x := range s.stored {
			if x.name == name {
				unix.Close(x.fd)
			} else {
				hold = append(hold, x)
			}
		}
		s.stored = hold
	case fields["FDSTORE"] == "1" && name != "" && fields["FDPOLL"] == "0":
		for len(fds) > 0 && len(s.stored) < s.max {
			s.stored = append(s.stored, storedFD{name, fds[0]})
			fds = fds[1:]
		}
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// start returns the store of a new process of the unit, with copies of the stored files.
func (s *fakeSystemd) start(t *testing.T) *Systemd {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var files []*os.File
	for _, x := range s.stored {
		fd, err := unix.FcntlInt(uintptr(x.fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, os.NewFile(uintptr(fd), x.name))
	}
	return newSystemd(s.path, files)
}

func (s *fakeSystemd) names() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.stored {
		out = append(out, x.name)
	}
	return out
}

// TestSystemd: systemd holds FIFOs after the agent's end, even without writers. The next agent
// does not store them again. Names that systemd does not allow are converted.
func TestSystemd(t *testing.T) {
	s, dir := newFakeSystemd(t, 10), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, strings.Repeat("d", 200)), 0o700); err != nil {
		t.Fatal(err)
	}
	paths := []string{filepath.Join(dir, "a b:c%d"),
		filepath.Join(dir, strings.Repeat("d", 200), strings.Repeat("e", 100))}
	k := Open(Options{Systemd: s.start(t)})
	for _, path := range paths {
		hold(t, k, path, newFIFO(t, path))
		if !readers(t, path) || k.By(path) != "systemd" {
			t.Errorf("%s is held by %q", path, k.By(path))
		}
	}
	end(k)
	for range 3 {
		k = Open(Options{Systemd: s.start(t)})
		for _, path := range paths {
			if !readers(t, path) { // a writer opens and closes it each time
				t.Fatalf("nobody holds %s", path)
			}
			hold(t, k, path, openFIFO(t, path))
		}
		end(k)
	}
	until(t, "the probes are gone", func() bool { return len(s.names()) == 2 })
	if got := s.names(); len(got) != 2 || got[0] != dir+"/a%20b%3Ac%25d" ||
		!strings.HasPrefix(got[1], "nearside-sha256-") {
		t.Errorf("stored: %q", got)
	}
	k = Open(Options{Systemd: s.start(t)})
	for _, path := range paths {
		if err := k.Release(path); err != nil || k.By(path) != "" {
			t.Errorf("%v, held by %q", err, k.By(path))
		}
		until(t, "release", func() bool { return !readers(t, path) })
	}
	end(k)
}

// TestSystemdIsFull: the process holds files that systemd rejects, which is logged once. The
// status has the holder of each file. With a larger limit, the next agent stores the files in
// systemd.
func TestSystemdIsFull(t *testing.T) {
	for most, inSystemd := range map[int]int{0: 0, 1: 0, 3: 2} { // one slot is for the probe
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			s, run := newFakeSystemd(t, most), t.TempDir()
			var log bytes.Buffer
			k := Open(Options{Dir: run, Command: selfCommand(t, run), Systemd: s.start(t),
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			by := map[bool]int{}
			paths := []string{filepath.Join(run, "1"), filepath.Join(run, "2"), filepath.Join(run, "3"), filepath.Join(run, "4")}
			for _, path := range paths {
				hold(t, k, path, newFIFO(t, path))
				if !readers(t, path) {
					t.Errorf("nobody holds %s", path)
				}
				by[k.By(path) == "systemd"]++
				if by := k.By(path); by != "systemd" &&
					(!strings.HasPrefix(by, "nearside hold (pid ") || !strings.HasSuffix(by, "since systemd takes no more")) {
					t.Errorf("held by %q", by)
				}
			}
			if by[true] != inSystemd || strings.Count(log.String(), "Set FileDescriptorStoreMax=") != 1 {
				t.Errorf("%v, log: %s", by, &log)
			}
			until(t, "the probes are gone", func() bool { return len(s.names()) == inSystemd })
			end(k)
			s.mu.Lock()
			s.max = 100
			s.mu.Unlock()
			k = Open(Options{Dir: run, Systemd: s.start(t)})
			for _, path := range paths {
				hold(t, k, path, openFIFO(t, path))
				if by := k.By(path); by != "systemd" {
					t.Errorf("held by %q", by)
				}
			}
			until(t, "the process holds nothing", func() bool {
				names, err := k.process.names()
				return err == nil && len(names) == 0
			})
			end(k)
			for _, path := range paths {
				if !readers(t, path) {
					t.Errorf("nobody holds %s", path)
				}
			}
		})
	}
}

// TestSystemdIsGone: without a manager, the process holds the files.
func TestSystemdIsGone(t *testing.T) {
	run := t.TempDir()
	k := Open(Options{Dir: run, Command: selfCommand(t, run), Systemd: newSystemd(filepath.Join(run, "nobody"), nil)})
	path := filepath.Join(run, "a")
	hold(t, k, path, newFIFO(t, path))
	if !readers(t, path) || !strings.HasPrefix(k.By(path), "nearside hold (pid ") {
		t.Errorf("held by %q", k.By(path))
	}
	if err := k.Release(path); err != nil {
		t.Error(err)
	}
	end(k)
}

// TestFromEnvironment: the store is used only if systemd started this process and is recent
// enough.
func TestFromEnvironment(t *testing.T) {
	own := fmt.Sprint(os.Getpid())
	for name, c := range map[string]struct {
		socket, pid string
		found       bool
	}{
		"systemd":             {"/run/systemd/notify", own, true},
		"an abstract socket":  {"@notify", own, true},
		"no socket":           {"", own, false},
		"a socket elsewhere":  {"vsock:2:1234", own, false},
		"before 248":          {"/run/systemd/notify", "", false},
		"started by a script": {"/run/systemd/notify", "1", false},
	} {
		t.Setenv("NOTIFY_SOCKET", c.socket)
		t.Setenv("SYSTEMD_EXEC_PID", c.pid)
		t.Setenv("LISTEN_FDS", "0")
		t.Setenv("LISTEN_PID", own)
		if got, sockets := FromEnvironment("dns-udp"); (got != nil) != c.found || len(sockets) > 0 {
			t.Errorf("%s: found %v", name, got != nil)
		}
		if _, set := os.LookupEnv("LISTEN_PID"); set {
			t.Errorf("%s: children inherit LISTEN_PID", name)
		}
	}
}
