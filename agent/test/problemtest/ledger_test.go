package problemtest

import (
	"fmt"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// ledgerFault is a fault while lines are sent, and how the agent reports it. Without check, the
// fault takes too long to be reported here; TestFaults checks it, if anything is lost.
type ledgerFault struct {
	name        string
	begin, heal func()
	check       string // class of the problem
	cause       string // part of its reason
	metric      string // the beginning of a series: a counter that grows, or a gauge above 0
	ends        bool   // the problem may end with the next write
	alert       string
}

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// exists waits until a file exists.
func (l *ledger) exists(path string) {
	l.t.Helper()
	agenttest.Eventually(l.t, path+" exists", func() bool { return isFile(path) })
}

// shadow returns a new directory for a mount that shows hidden files.
func (l *ledger) shadow() string {
	l.mounts++
	dir := filepath.Join(l.dir, "shadow", fmt.Sprint(l.mounts))
	agenttest.Do(l.t, os.MkdirAll(dir, 0o700))
	return dir
}

// mount mounts a file system until the end of the test.
func (l *ledger) mount(source, dir, kind string, flags uintptr, options string) {
	l.t.Helper()
	agenttest.Do(l.t, syscall.Mount(source, dir, kind, flags, options))
	l.t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// unmount unmounts a file system, and waits until the agent uses the directory below it.
func (l *ledger) unmount(dir string) {
	const metric = "nearside_log_directory_changes_total"
	sum := func() (n float64) {
		for name, value := range samples(l.t, l.Running) {
			if strings.HasPrefix(name, metric) {
				n += value
			}
		}
		return n
	}
	before := sum()
	agenttest.Do(l.t, syscall.Unmount(dir, syscall.MNT_DETACH))
	agenttest.Eventually(l.t, "the agent uses "+dir, func() bool { return sum() > before })
}

// hide shows the present directory in a shadow, because a mount hides it.
func (l *ledger) hide(dir string) { l.mount(dir, l.shadow(), "", syscall.MS_BIND, "") }

// remove removes a directory of a log. The removed file stays readable for the test.
func (l *ledger) remove(to string) {
	path := l.files[to]
	f, err := os.Open(path)
	agenttest.Do(l.t, err)
	l.removed[to] = append(l.removed[to], f)
	entries, err := os.ReadDir(filepath.Dir(path))
	agenttest.Do(l.t, err, os.Remove(path))
	for _, e := range entries {
		_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
	}
	_ = os.Remove(filepath.Dir(path))
}

// disk mounts an ext4 file system over the directory of a log, and waits until the agent uses it.
func (l *ledger) disk(path string) (image string) {
	dir := filepath.Dir(path)
	image = filepath.Join(l.dir, fmt.Sprintf("disk%d", l.mounts))
	agenttest.Do(l.t, os.WriteFile(image, nil, 0o600), os.Truncate(image, 8<<20))
	out, err := exec.CommandContext(l.t.Context(), "mkfs.ext4", "-q", "-F", image).CombinedOutput()
	if err != nil {
		l.t.Fatalf("mkfs.ext4: %v %s", err, out)
	}
	l.hide(dir)
	out, err = exec.CommandContext(l.t.Context(), "mount", "-o", "loop,errors=remount-ro", image, dir).CombinedOutput()
	if err != nil {
		l.t.Fatalf("mount: %v %s", err, out)
	}
	l.t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	l.exists(path)
	l.send()
	l.balance()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	agenttest.Do(l.t, err, unix.Syncfs(fd), unix.Close(fd))
	return image
}

// shutDown makes all operations of an ext4 file system fail with EIO.
func (l *ledger) shutDown(dir string) {
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	agenttest.Do(l.t, err, unix.IoctlSetPointerInt(fd, shutdown, 0), unix.Close(fd))
}

// makeReadOnly makes the kernel find an error in an ext4 file system, and remount it.
func (l *ledger) makeReadOnly(dir string) {
	b, err := os.ReadFile("/proc/self/mounts")
	agenttest.Do(l.t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[1] == dir && f[2] == "ext4" {
			agenttest.Do(l.t, os.WriteFile("/sys/fs/ext4/"+filepath.Base(f[0])+"/trigger_fs_error", []byte("1"), 0))
			return
		}
	}
	l.t.Fatal("no ext4 file system at", dir)
}

// showDisks mounts all failed disks in shadows.
func (l *ledger) showDisks() {
	images, err := filepath.Glob(filepath.Join(l.dir, "disk*"))
	agenttest.Do(l.t, err)
	for _, image := range images {
		agenttest.Eventually(l.t, "the kernel and the agent have closed "+image, func() bool {
			devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
			agenttest.Do(l.t, err)
			return !slices.ContainsFunc(devices, func(name string) bool {
				b, _ := os.ReadFile(name)
				return strings.Contains(string(b), image)
			})
		})
		dir := l.shadow()
		if out, err := exec.CommandContext(l.t.Context(), "mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
			l.t.Fatalf("mount: %v %s", err, out)
		}
		l.t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	}
}

// byName iterates over a map in the order of its keys.
func byName[T any](m map[string]T) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

// faults are all faults, each once.
func (l *ledger) faults() []ledgerFault {
	none := func() {}
	web := filepath.Join(l.logs, "x/a/web.log")
	dir, pipes := filepath.Dir(web), filepath.Join(l.dir, "run/access")
	aside := func(path string) func() {
		return func() {
			agenttest.Do(l.t, os.Rename(path, filepath.Join(l.logs, fmt.Sprint("old", l.random.IntN(1e9)))))
		}
	}
	back := func() { l.exists(web) }
	out := []ledgerFault{
		{name: "full disk", begin: func() { full(l.world, l.logs) },
			heal:  func() { agenttest.Do(l.t, os.Remove(filepath.Join(l.logs, "filler"))) },
			check: "space", cause: "cannot be written", metric: `nearside_log_failing_streams{destination="file `,
			alert: "NearsideLogFails", ends: true},
		{name: "refused senders", begin: func() { l.dial().Close() }, heal: none, check: api.ClassLogSenders,
			metric: "nearside_log_connections_refused_total", alert: "NearsideLogSendersRefused"},
		{name: "moved directory", begin: aside(dir), heal: back},
		{name: "missing ancestor", begin: aside(filepath.Dir(dir)), heal: back},
		{name: "removed directory", begin: func() { l.remove("file " + web) }, heal: back},
		{name: "unsafe directory", begin: func() { agenttest.Do(l.t, os.Chmod(dir, 0o777)) }, heal: none},
		{name: "mount over the directory", begin: func() {
			l.hide(dir)
			l.mount("tmpfs", dir, "tmpfs", 0, "size=8m,mode=0750")
			l.exists(web)
		}, heal: func() {
			l.hide(dir)
			l.unmount(dir)
		}},
	}
	for i := range out[2:] {
		f := &out[i+2]
		f.check, f.cause, f.alert = api.ClassLogDirectory, dir, "NearsideLogDirectoryReplaced"
		f.metric = `nearside_log_directory_changes_total{destination="file `
	}
	out = append(out, ledgerFault{name: "removed FIFO directory",
		begin: func() { agenttest.Do(l.t, os.RemoveAll(pipes)) },
		heal: func() {
			for _, path := range l.pipes {
				l.exists(path)
			}
			l.openPipes()
		}, check: api.ClassLogDirectory, cause: pipes, alert: "NearsideLogDirectoryReplaced",
		metric: `nearside_log_directory_changes_total{destination="tcp `})
	for name, c := range byName(map[string]*collector{"tcp": l.tcp, "otlp": l.otlp}) {
		fails := fmt.Sprintf(`nearside_log_failing_streams{destination="%s %s"`, name, c.address)
		name += " collector"
		out = append(out,
			ledgerFault{name: name + " that is away", begin: func() { c.close(); c.reset() }, heal: c.open,
				check: "access-logs", cause: c.address, metric: fails, alert: "NearsideLogFails"},
			ledgerFault{name: name + " that wants TLS", begin: func() { c.tls.Store(true); c.reset() },
				heal: func() { c.tls.Store(false) }, check: "access-logs", cause: c.address, metric: fails,
				alert: "NearsideLogFails"},
			ledgerFault{name: name + " that resets", begin: c.reset, heal: c.reset},
			ledgerFault{name: name + " that is slow", begin: func() { c.slow.Store(true) },
				heal: func() { c.slow.Store(false) }},
			ledgerFault{name: name + " that does not read", begin: func() { c.read(false) }, heal: func() { c.read(true) }})
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil || !isFile("/dev/loop-control") {
		l.t.Log("no disk fails, because no ext4 file system can be mounted here")
		return out
	}
	for name, f := range byName(map[string]func(string){"input/output error": l.shutDown,
		"read-only file system": l.makeReadOnly}) {
		out = append(out, ledgerFault{name: name, begin: func() { l.disk(web); f(dir) }, heal: func() { l.unmount(dir) },
			check: "access-logs", cause: name, metric: `nearside_log_failing_streams{destination="file `,
			alert: "NearsideLogFails"})
	}
	return out
}

// TestAccountOfTheNextAgent checks that the account of an agent begins with the lines that the
// agent before it has spooled.
func TestAccountOfTheNextAgent(t *testing.T) {
	l := newLedger(t)
	l.tcp.close()
	l.tcp.reset()
	for range 5 {
		l.send()
	}
	to := "tcp " + l.tcp.address
	account := func() (s api.LogStream) {
		got, err := l.Api().AccessLogs(t.Context())
		agenttest.Do(t, err)
		for i := range got.Items {
			if x := &got.Items[i]; x.Kind == api.LogForwarder && x.Destination == to {
				s = *x
			}
		}
		return s
	}
	agenttest.Eventually(t, "all lines are spooled", func() bool { return account().Spooled == l.sent[to] })
	agenttest.Do(t, l.Stop())
	l.Running = agenttest.Up(t, l.dir, l.deps)
	if s := account(); s.In != l.sent[to] || s.Spooled != s.In {
		t.Errorf("%d lines were spooled: %+v", l.sent[to], s)
	}
	l.tcp.open()
	agenttest.Eventually(t, "the collector has all lines", func() bool {
		s := account()
		return s.Written == s.In && s.In == l.sent[to] && l.tcp.lines.Load() == s.In
	})
}
