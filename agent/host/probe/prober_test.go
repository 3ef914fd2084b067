package probe_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/probe"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

const pid = "77"

// root creates a file system with a process 77 in the mount namespace of the test.
func root(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "proc/77/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"+
		"Max processes             1                    2                    processes \n"+
		"Max open files            1024                 4096                 files     \n")
	write(t, dir, "proc/77/status", "Name:\tenvoy\nCapEff:\t0000000000000400\n")
	write(t, dir, "proc/77/task/77/comm", "envoy\n")
	write(t, dir, "proc/77/task/78/comm", "wrk:worker_0\n")
	write(t, dir, "proc/77/task/79/comm", "wrk:worker_1\n")
	write(t, dir, "etc/resolv.conf", "# of the network\nsearch a\nnameserver 10.0.0.1\nnameserver 10.0.0.2 \n")
	namespace(t, dir, "self", "mnt:[1]")
	namespace(t, dir, pid, "mnt:[1]")
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func namespace(t *testing.T, dir, process, name string) {
	t.Helper()
	path := filepath.Join(dir, "proc", process, "ns/mnt")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(path) // it may not exist
	if err := os.Symlink(name, path); err != nil {
		t.Fatal(err)
	}
}

func key(id string) node.Key { return node.Key{ID: id} }

// peers are the peers that a server reports.
type peers map[node.Key]access.Peer

func (p peers) of(k node.Key) (access.Peer, bool) { x, ok := p[k]; return x, ok }

// stranger is a process of a user without files.
var stranger = access.Peer{Local: true, UID: 4_000_001, GID: 4_000_001, Groups: []uint32{4_000_002}, PID: 77}

// inBubble runs a prober with fake time. later waits for the next examination and returns the
// number of reported changes.
func inBubble(t *testing.T, o probe.Options, then func(p *probe.Prober, later func() int64)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int64
		o.Changed = func() { changes.Add(1) }
		p := probe.NewProber(o)
		go p.Run(t.Context())
		synctest.Wait()
		then(p, func() int64 {
			time.Sleep(6 * time.Second)
			synctest.Wait()
			return changes.Swap(0)
		})
	})
}

// TestFiles checks which files an Envoy can open.
func TestFiles(t *testing.T) {
	dir := root(t)
	write(t, dir, "log/open/there.log", "")
	write(t, dir, "log/shut/there.log", "")
	write(t, dir, "log/file", "")
	for path, mode := range map[string]os.FileMode{
		"log/open":           0o777,
		"log/open/there.log": 0o666,
		"log/shut":           0o755,
		"log/shut/there.log": 0o644,
	} {
		if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"log/secret/in", "log/group", "log/open/dir", "run/own"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "log/secret"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "log/group"), 0o770); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"log/link": "open", "log/open/dangling": "nowhere", "log/circle": "circle"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	owner := stranger
	owner.UID, owner.GID = uint32(os.Getuid()), uint32(os.Getgid())
	member := stranger
	member.Groups = []uint32{4_000_002, uint32(os.Getgid())}
	for _, c := range []struct {
		file string
		peer access.Peer
		want string // "" if the file can be opened or the result is unknown
	}{
		{"/log/open/a.log", stranger, ""},
		{"/log/open/there.log", stranger, ""},
		{"/log/link/a.log", stranger, ""},
		{"/log/none/deep/a.log", stranger,
			"the directory /log/none/deep does not exist; make it, for the uid 4000001 of Envoy"},
		{"/log/none/a.log", owner, "the directory /log/none does not exist"},
		{"/log/file/a.log", stranger, "/log/file is not a directory; give another path"},
		{"/log/shut/a.log", stranger,
			"its uid 4000001 may not make files in /log/shut (mode 0755); let it, with chmod or chown"},
		{"/log/shut/a.log", owner, ""},
		{"/log/shut/there.log", stranger, "its uid 4000001 may not write it (mode 0644)"},
		{"/log/secret/in/a.log", stranger, "its uid 4000001 may not enter "},
		{"/log/group/a.log", stranger, "its uid 4000001 may not enter "},
		{"/log/group/a.log", member, ""},
		{"/log/open/dir", stranger, "it is a directory; give the path of a file"},
		{"/log/open/dangling", stranger, ""},
		{"/log/circle/a.log", stranger, ""},
		{"/run/own/access/a.fifo", stranger, ""},
		{"/dev/stdout", stranger, ""},
		{"/dev/none/x", stranger, ""},
		{"/proc/self/fd/1", stranger, ""},
		{"relative.log", stranger, ""},
		{"/log/../log/none/a.log", stranger, "the directory /log/none does not exist"},
	} {
		k := key("default.web")
		inBubble(t, probe.Options{Root: dir, Own: "/run/own", Peer: peers{k: c.peer}.of}, func(p *probe.Prober,
			_ func() int64) {
			h := p.Host(k, []string{c.file})
			if got := h.Unwritable[c.file]; h.Guessed || (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
				t.Errorf("%s for uid %d: %q, want %q", c.file, c.peer.UID, got, c.want)
			}
		})
	}
}

// TestRootOpensAll checks that a process that is not restricted by modes can open existing files,
// but nothing in missing directories.
func TestRootOpensAll(t *testing.T) {
	dir := root(t)
	write(t, dir, "proc/77/status", "CapEff:\t000001ffffffffff\n")
	write(t, dir, "log/a", "")
	if err := os.Chmod(filepath.Join(dir, "log/a"), 0o400); err != nil {
		t.Fatal(err)
	}
	k := key("default.web")
	inBubble(t, probe.Options{Root: dir, Peer: peers{k: stranger}.of}, func(p *probe.Prober, _ func() int64) {
		if h := p.Host(k, []string{"/log/a", "/none/a"}); len(h.Unwritable) != 1 || h.Unwritable["/none/a"] == "" {
			t.Errorf("%+v", h)
		}
	})
}

// TestOtherNamespace checks that files that the agent does not see are not reported, and that
// results are a guess if the namespace is unknown.
func TestOtherNamespace(t *testing.T) {
	dir := root(t)
	k := key("default.web")
	files := []string{"/none/a"}
	namespace(t, dir, pid, "mnt:[2]")
	inBubble(t, probe.Options{Root: dir, Peer: peers{k: stranger}.of}, func(p *probe.Prober, _ func() int64) {
		if h := p.Host(k, files); h.Unwritable != nil || h.OpenFiles != 4096 || h.Workers != 2 {
			t.Errorf("another namespace: %+v", h)
		}
	})
	if err := os.Remove(filepath.Join(dir, "proc/77/ns/mnt")); err != nil {
		t.Fatal(err)
	}
	inBubble(t, probe.Options{Root: dir, Peer: peers{k: stranger}.of}, func(p *probe.Prober, _ func() int64) {
		if h := p.Host(k, files); !h.Guessed || h.Unwritable["/none/a"] == "" {
			t.Errorf("a namespace that is not known: %+v", h)
		}
	})
	far := stranger
	far.Local, far.PID = false, 0
	inBubble(t, probe.Options{Root: dir, Peer: peers{k: far}.of}, func(p *probe.Prober, _ func() int64) {
		if h := p.Host(k, files); h != nil {
			t.Errorf("over TCP: %+v", h)
		}
		if h := p.Host(key("default.none"), files); h != nil {
			t.Errorf("without a stream: %+v", h)
		}
	})
}

// TestChanges checks that each change is reported once, within the interval of examinations, and
// that unchanged results have the same pointer.
func TestChanges(t *testing.T) {
	dir := root(t)
	k := key("default.web")
	var gone atomic.Bool
	peer := func(node.Key) (access.Peer, bool) { return stranger, !gone.Load() }
	inBubble(t, probe.Options{Root: dir, Peer: peer}, func(p *probe.Prober, later func() int64) {
		expect := func(when string, n int64, then func(h *finding.Host) bool) {
			t.Helper()
			if got := later(); got != n {
				t.Errorf("%s: told %d times, want %d", when, got, n)
			}
			if h := p.Host(k, []string{"/none/a"}); !then(h) {
				t.Errorf("%s: %+v", when, h)
			}
		}
		first := p.Host(k, []string{"/none/a"})
		if first == nil || first.Unwritable["/none/a"] == "" || first.OpenFiles != 4096 || first.Workers != 2 ||
			first.Resolver != "" {
			t.Fatalf("at first: %+v", first)
		}
		expect("nothing has changed", 0, func(h *finding.Host) bool { return h == first })
		if err := os.Mkdir(filepath.Join(dir, "none"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "none"), 0o777); err != nil {
			t.Fatal(err)
		}
		expect("the directory is made", 1, func(h *finding.Host) bool { return h.Unwritable == nil })
		write(t, dir, "etc/resolv.conf", "nameserver 10.0.0.2\n")
		expect("another name server", 1, func(h *finding.Host) bool {
			return h.Resolver == `/etc/resolv.conf names 10.0.0.2, and named 10.0.0.1, 10.0.0.2 when this Envoy connected`
		})
		write(t, dir, "etc/resolv.conf", "")
		expect("it is being written", 1, func(h *finding.Host) bool { return h.Resolver == "" })
		write(t, dir, "etc/resolv.conf", "nameserver 10.0.0.1\nnameserver 10.0.0.2\n")
		expect("as it was", 0, func(h *finding.Host) bool { return h.Resolver == "" })
		if h := p.Host(k, []string{"/none/a", "/more/a"}); h.Unwritable["/more/a"] == "" {
			t.Errorf("another file: %+v", h)
		}
		gone.Store(true)
		expect("it has gone", 0, func(h *finding.Host) bool { return h == nil })
	})
}

// TestSlowLook checks that a caller waits briefly, only once, and gets the result later.
func TestSlowLook(t *testing.T) {
	dir := root(t)
	known := peers{key("a.a"): stranger, key("a.b"): stranger}
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int64
		p := probe.NewProber(probe.Options{Root: dir, Peer: known.of, Changed: func() { changes.Add(1) }})
		began := time.Now()
		if h := p.Host(key("a.a"), nil); h != nil || time.Since(began) != 100*time.Millisecond {
			t.Errorf("after %s: %+v", time.Since(began), h)
		}
		if h := p.Host(key("a.b"), nil); h != nil || time.Since(began) != 100*time.Millisecond {
			t.Errorf("the next one waits too: %s, %+v", time.Since(began), h)
		}
		go p.Run(t.Context())
		synctest.Wait()
		if changes.Load() != 1 || p.Host(key("a.a"), nil) == nil || p.Host(key("a.b"), nil) == nil {
			t.Errorf("told %d times", changes.Load())
		}
	})
}
