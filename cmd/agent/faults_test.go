package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// mountTmpfs gives a file system of its own, which can be full or read-only.
func mountTmpfs(t *testing.T, dir, options string) (remount func(flags uintptr, options string)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return func(flags uintptr, options string) {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, options); err != nil {
			t.Fatal(err)
		}
	}
}

// stateCheck is what readiness says of the state.
func (d *daemon) stateCheck() api.Check {
	d.t.Helper()
	h, err := d.api().Ready(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, c := range h.Checks {
		if c.Name == "state" {
			return c
		}
	}
	d.t.Fatalf("no check of the state: %+v", h)
	return api.Check{}
}

// A full state disk: files and proxies go on, writes over the API are refused with the remedy,
// everybody is told, and it is over when there is room.
func TestFullStateDisk(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	remount := mountTmpfs(t, dir+"/state", "size=1m")
	write(t, dir+"/resources/web.yaml", webDoc)
	d := start(t, dir)
	if code, _, errs := d.nearside(meshDoc("kept", 1), "apply", "-f", "-"); code != command.ExitOK {
		t.Fatal(errs)
	}
	ballast, err := os.Create(dir + "/state/ballast")
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = ballast.Write(make([]byte, 4096))
	}
	ballast.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}

	// The file grows only now and then, so that some writes still find room in it.
	refused, written := -1, map[string]bool{"kept": true}
	for i := 0; i < 500 && refused < 0; i++ {
		name := fmt.Sprintf("m-%d", i)
		code, _, errs := d.nearside(bigDoc(name), "apply", "-f", "-")
		switch code {
		case command.ExitOK:
			written[name] = true
		case command.ExitFailed:
			refused = i
			contains(t, errs, "no space left on device", "free space for "+dir+"/state/nearside.db")
		default:
			t.Fatalf("exit code %d: %s", code, errs)
		}
	}
	if refused < 0 {
		t.Fatal("all writes found room on a full disk")
	}
	d.says("the state is not written to disk")
	if c := d.stateCheck(); !c.OK || !c.Degraded || !strings.Contains(c.Reason, "in memory") ||
		!strings.Contains(c.Reason, "no space") {
		t.Errorf("readiness: %+v", c)
	}
	code, out, _ := d.nearside("", "status")
	if code != command.ExitOK {
		t.Errorf("status: exit code %d", code)
	}
	contains(t, out, "WARN state: ", "no space left on device", "WARN space: ")
	put, err := unixHTTP(d.socket()).Post("http://x/v1/apply", "application/json", strings.NewReader(bigDoc("again")))
	if err != nil {
		t.Fatal(err)
	}
	put.Body.Close()
	if put.StatusCode != http.StatusInsufficientStorage {
		t.Errorf("a write over the API: %s", put.Status)
	}
	// Files are taken all the same, in memory.
	write(t, dir+"/resources/more.yaml", bigDoc("from-file"))
	eventually(t, "the file's mesh is there", func() bool {
		code, _, _ := d.nearside("", "get", "mesh", "from-file")
		return code == command.ExitOK
	})

	remount(0, "size=16m")
	if code, _, errs := d.nearside(bigDoc("again"), "apply", "-f", "-"); code != command.ExitOK {
		t.Errorf("a write when there is room: %s", errs)
	}
	d.says("the state is written to disk again")
	if c := d.stateCheck(); c.Degraded {
		t.Errorf("readiness: %+v", c)
	}
	written["again"] = true
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	d = start(t, dir)
	for name := range written {
		if code, _, errs := d.nearside("", "get", "mesh", name); code != command.ExitOK {
			t.Errorf("after a restart: %s", errs)
		}
	}
}

// bigDoc is a mesh of some ten kilobytes.
func bigDoc(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "type: Mesh\nname: %s\nlabels:\n", name)
	for i := range 120 {
		fmt.Fprintf(&b, "  label-%d: %s\n", i, strings.Repeat("x", 60))
	}
	return b.String()
}

// A read-only state disk at the start, with nothing to write to it: that it can be written again is
// noticed too.
func TestReadOnlyStateDisk(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	remount := mountTmpfs(t, dir+"/state", "size=1m")
	remount(syscall.MS_RDONLY, "size=1m")
	d := start(t, dir)
	d.says("paths.state cannot be written", "read-only file system")
	if c := d.stateCheck(); !c.OK || !c.Degraded {
		t.Errorf("readiness: %+v", c)
	}
	code, _, errs := d.nearside(meshDoc("m", 1), "apply", "-f", "-")
	if code != command.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	contains(t, errs, "read-only file system", "make it writable")
	remount(0, "size=1m")
	eventually(t, "the state is well again", func() bool { return !d.stateCheck().Degraded })
	if code, _, errs := d.nearside(meshDoc("m", 1), "apply", "-f", "-"); code != command.ExitOK {
		t.Error(errs)
	}
}

func unixHTTP(socket string) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}}
}

// hammer writes through the API, one mesh after the other and then the same ones again, until the
// agent is gone. It returns what was acknowledged: the number of the last write of each mesh.
func hammer(d *daemon, writers int, enough func(n int)) map[string]int {
	acknowledged := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range writers {
		api := d.api()
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("m-%d-%d", w, i%5)
				doc := fmt.Sprintf("{type: Mesh, name: %s, labels: {n: \"%d\"}}", name, i)
				if _, err := api.Apply(context.Background(), []byte(doc), false); err != nil {
					return
				}
				mu.Lock()
				acknowledged[name] = i
				n := i*writers + w
				mu.Unlock()
				enough(n)
			}
		})
	}
	wg.Wait()
	return acknowledged
}

// holds checks that an agent has what was acknowledged, or the write after it, which was under way.
func (d *daemon) holds(acknowledged map[string]int) {
	d.t.Helper()
	for name, n := range acknowledged {
		it, err := d.api().Get(d.t.Context(), "mesh", "", name)
		if err != nil {
			d.t.Errorf("write %d of %s was acknowledged: %v", n, name, err)
			continue
		}
		if !bytes.Contains(it.Resource, fmt.Appendf(nil, `"n":"%d"`, n)) &&
			!bytes.Contains(it.Resource, fmt.Appendf(nil, `"n":"%d"`, n+5)) {
			d.t.Errorf("write %d of %s was acknowledged, and it is now %s", n, name, it.Resource)
		}
		h, err := d.api().History(d.t.Context(), "mesh", "", name)
		if err != nil {
			d.t.Errorf("history of %s: %v", name, err)
			continue
		}
		for i := 1; i < len(h.Items); i++ {
			if h.Items[i].Revision <= h.Items[i-1].Revision {
				d.t.Errorf("history of %s is not in order: %+v", name, h.Items)
			}
		}
		if last := h.Items[len(h.Items)-1].Revision; last != it.Meta.Revision {
			d.t.Errorf("history of %s ends at %d, the mesh is at %d", name, last, it.Meta.Revision)
		}
	}
}

// The agent is killed while clients write: what was acknowledged is there after the next start,
// with its history, and the socket files that it left are replaced.
func TestKillDuringWrites(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		d := start(t, dir)
		var once sync.Once
		acknowledged := hammer(d, 3, func(n int) {
			if n > 10+round {
				once.Do(func() { _ = d.cmd.Process.Kill() })
			}
		})
		<-d.ended
		if _, err := os.Lstat(d.socket()); err != nil {
			t.Fatalf("a killed agent has left no socket: %v", err)
		}
		d = start(t, dir)
		d.holds(acknowledged)
		if strings.Contains(d.logged(), "level=ERROR") || t.Failed() {
			t.Fatalf("round %d:\n%s", round, d.logged())
		}
		if code := d.end(syscall.SIGTERM); code != 0 {
			t.Fatalf("exit code %d", code)
		}
	}
}

// SIGTERM while clients write ends the agent in order.
func TestTermDuringWrites(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	d := start(t, dir)
	var once sync.Once
	acknowledged := hammer(d, 3, func(n int) {
		if n > 60 {
			once.Do(func() { _ = d.cmd.Process.Signal(syscall.SIGTERM) })
		}
	})
	<-d.ended
	if d.err != nil {
		t.Errorf("after SIGTERM: %v", d.err)
	}
	for _, s := range []string{d.socket(), d.xds()} {
		if _, err := os.Lstat(s); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", s, err)
		}
	}
	start(t, dir).holds(acknowledged)
}

// SIGHUP reads the config again, and says what that comes to.
func TestHangup(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	file := dir + "/agent.yaml"
	write(t, file, "log: {level: info}\nnode: {zone: one}\n")
	d := launch(t, dir, func(c *exec.Cmd) { c.Args = append(c.Args, "--config", file) })
	d.says("the agent is ready")
	hangup := func(text string, says ...string) {
		t.Helper()
		write(t, file, text)
		if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		d.says(says...)
	}
	hangup("log: {level: debug}\nnode: {zone: two}\n", "key=log.level from=info to=debug",
		"needs a restart of the agent\" key=node.zone from=one to=two")
	hangup("log: {level: loud}\n", "is not taken over", "agent.yaml:1: log.level", "one of debug, info, warn, error")
	code, out, _ := d.nearside("", "status")
	if code != command.ExitOK {
		t.Errorf("status: exit code %d", code)
	}
	contains(t, out, "(zone one)")
}

// A state file that is garbage is set aside; the resources of the directory are there at once.
func TestDamagedStateFile(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc)
	write(t, dir+"/state/nearside.db", strings.Repeat("no database\n", 9000))
	if err := os.Chmod(dir+"/state/nearside.db", 0o600); err != nil {
		t.Fatal(err)
	}
	d := start(t, dir)
	d.says("the state file is damaged", "renamed="+dir+"/state/nearside.db.damaged-")
	if code, _, errs := d.nearside("", "get", "dataplane", "web"); code != command.ExitOK {
		t.Error(errs)
	}
	_, out, _ := d.nearside("", "status")
	contains(t, out, "WARN state-file: ", "set aside as "+dir+"/state/nearside.db.damaged-", "ok   state: ")
	if aside, _ := filepath.Glob(dir + "/state/nearside.db.damaged-*"); len(aside) != 1 {
		t.Errorf("set aside: %v", aside)
	}
}

// A deletion that is damaged on disk does not bring back what was deleted, however often the agent
// is started, and says what to do.
func TestDamagedDeletion(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	d := start(t, dir)
	d.must("type: Mesh\nname: default\n---\ntype: MeshTrafficPermission\nmesh: default\nname: guard\nspec:\n  from:\n"+
		"  - targetRef: {kind: Mesh}\n    default: {action: Allow}\n", "apply", "-f", "-")
	d.must("", "delete", "meshtrafficpermission", "guard")
	restart := func(change func([]byte) []byte) {
		t.Helper()
		if code := d.end(syscall.SIGTERM); code != command.ExitOK {
			t.Fatalf("exit code %d", code)
		}
		file := dir + "/state/nearside.db"
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, change(b), 0o600); err != nil {
			t.Fatal(err)
		}
		d = start(t, dir)
	}
	restart(func(b []byte) []byte {
		if !bytes.Contains(b, []byte(`"deleted":true`)) {
			t.Fatal("the deletion is not to be found")
		}
		return bytes.ReplaceAll(b, []byte(`"deleted":true`), []byte(`"deleted":trve`))
	})
	for range 3 {
		contains(t, d.must("", "status"), "WARN state: 1 resource cannot be read", "MeshTrafficPermission/default/guard",
			"roll it back, or delete it", "FAIL damaged since ")
		if code, out, errs := d.nearside("", "get", "meshtrafficpermission", "guard"); code == command.ExitOK ||
			!strings.Contains(errs, "is not in force") {
			t.Fatalf("get: exit code %d, %s%s", code, out, errs)
		}
		contains(t, d.must("", "history", "meshtrafficpermission", "guard"), "created")
		restart(func(b []byte) []byte { return b })
	}
	d.must("", "delete", "meshtrafficpermission", "guard")
	restart(func(b []byte) []byte { return b })
	contains(t, d.must("", "status"), "ok   state: every change is on disk")
	if _, _, errs := d.nearside("", "get", "meshtrafficpermission", "guard"); !strings.Contains(errs, "does not exist") {
		t.Errorf("after the deletion: %s", errs)
	}
}

// What lies in the place of the pid file is no reason not to start, unless it cannot be locked.
func TestPIDFile(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	pid := dir + "/run/nearside.pid"
	write(t, pid, "no number at all "+strings.Repeat("9", 5000))
	d := start(t, dir)
	if b, err := os.ReadFile(pid); err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(d.cmd.Process.Pid) {
		t.Errorf("pid file: %q %v", b, err)
	}
	if code, _, errs := runWith(runArgs(dir)); code != command.ExitFailed ||
		!strings.Contains(errs, fmt.Sprintf("(pid %d)", d.cmd.Process.Pid)) {
		t.Errorf("a second agent: exit code %d, %s", code, errs)
	}
	// One that overwrites the file takes nothing from the first agent: the lock holds, and the kernel
	// knows who has it.
	write(t, pid, "-1\n")
	if code, _, errs := runWith(runArgs(dir, "paths.state="+dir+"/other")); code != command.ExitFailed ||
		!strings.Contains(errs, fmt.Sprintf("(pid %d)", d.cmd.Process.Pid)) {
		t.Errorf("a second agent: exit code %d, %s", code, errs)
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := errors.Join(os.Remove(pid), os.Mkdir(pid, 0o700)); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runWith(runArgs(dir)); code != command.ExitFailed ||
		!strings.Contains(errs, "paths.run cannot be used") {
		t.Errorf("with a directory there: exit code %d, %s", code, errs)
	}
}

func runWith(args []string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(args, strings.NewReader(""), &out, &errs, nil)
	return code, out.String(), errs.String()
}

// A name that leads nowhere in the mesh is not "allowed".
func TestExplainNameThatLeadsNowhere(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"nosuch:80": "unknown host: no service of the mesh default has the name nosuch; " +
			"nearside inspect services lists them",
		"backen:80":      "unknown host: no service of the mesh default has the name backen; did you mean backend?",
		"backnd.mesh:80": "unknown host: no service of the mesh default has the name backnd.mesh; did you mean backend?",
		"web:80": "unreachable: the dataplane does not reach web: the dataplane has no transparent proxy and no " +
			"outbound to it",
		"example.com:80": "allowed: ",
	} {
		for _, what := range []string{"connection", "request"} {
			code, out, errs := runWith([]string{"explain", what, "-f", "../../examples/quickstart/resources",
				"--from", "web", "--to", to})
			if wanted := map[bool]int{true: command.ExitOK, false: 2}[strings.HasPrefix(want, "allowed")]; code != wanted ||
				!strings.HasPrefix(out, want) {
				t.Errorf("%s to %s: exit code %d, %s%s", what, to, code, out, errs)
			}
		}
	}
}

// A path that the system would refuse is named as such, on both sides.
func TestLongSocketPath(t *testing.T) {
	t.Parallel()
	long := "/tmp/" + strings.Repeat("x", 110)
	code, _, errs := runWith(runArgs("/tmp/nearside-test", "paths.run="+long))
	if code != command.ExitInvalid {
		t.Errorf("run: exit code %d", code)
	}
	contains(t, errs, "api.socket.path: ", "at most 107", "set a shorter path")
	code, _, errs = runWith([]string{"status", "--socket", long})
	if code != command.ExitUnreachable {
		t.Errorf("status: exit code %d", code)
	}
	contains(t, errs, "the path has 115 bytes, and the system takes at most 107")
}

// An agent that is stopped, or far too busy, is named as such after the time that was given.
func TestAgentThatHangs(t *testing.T) {
	t.Parallel()
	d := start(t, quickTemp(t))
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The signal is on its way; the kernel says when the process stands.
	eventually(t, "the agent stands", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(rest, "T")
	})
	code, _, errs := d.nearside("", "healthcheck", "--timeout", "200ms")
	if code != command.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	contains(t, errs, "the agent at "+d.socket()+" has said nothing for 200ms")
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := d.nearside("", "healthcheck"); code != command.ExitOK {
		t.Error(errs)
	}
}

// The agent outlives who reads its log.
func TestLogReaderGone(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "nearside", runArgs(dir)...)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	d := &daemon{t: t, dir: dir}
	eventually(t, "the agent answers", func() bool { _, err := d.api().Ready(t.Context()); return err == nil })
	r.Close()
	for i := range 3 {
		// logs a line
		if code, _, errs := d.nearside(meshDoc(fmt.Sprintf("m-%d", i), 1), "apply", "-f", "-"); code != command.ExitOK {
			t.Errorf("write %d: exit code %d: %s", i, code, errs)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// Data that does not arrive is a failure of every command.
func TestOutputThatIsLost(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc)
	d := start(t, dir)
	for _, line := range []string{
		"status", "status -o json", "status -o yaml", "get dp", "get dp -o name", "get dp -o yaml", "get dp web -o json",
		"history dp web", "inspect dataplanes", "inspect dataplanes -o name", "inspect dataplane web",
		"inspect dataplane web --type=status", "apply --dry-run -f -", "bootstrap --name web", "config show",
		"config schema", "completion bash", "version", "--help", "get --help",
	} {
		var errs bytes.Buffer
		args := append(strings.Fields(line), "--socket", d.socket())
		code := Main(args, strings.NewReader(meshDoc("m", 1)), fullWriter{}, &errs, nil)
		if code != command.ExitFailed || !strings.Contains(errs.String(), syscall.ENOSPC.Error()) {
			t.Errorf("%s: exit code %d: %s", line, code, errs.String())
		}
	}
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Another user may look, where the socket lets him, and not write.
func TestOtherUserMayNotWrite(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	as := asUser(t, dir, 4242)
	write(t, dir+"/run/x", "") // the directory stays open to all
	write(t, dir+"/resources/web.yaml", webDoc)
	other := func(d *daemon, args ...string) (int, string) {
		t.Helper()
		cmd := exec.Command("nearside", append(args, "--socket", d.socket())...)
		cmd.Stdin = strings.NewReader(meshDoc("m", 1))
		as(cmd)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	d := start(t, dir)
	if code, out := other(d, "status"); code != command.ExitPermission ||
		!strings.Contains(out, "hint: run the command as root") {
		t.Errorf("a socket with mode 0660: exit code %d: %s", code, out)
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	d = start(t, dir, "api.socket.mode=0666")
	if code, out := other(d, "get", "dp"); code != command.ExitOK {
		t.Errorf("reading: exit code %d: %s", code, out)
	}
	for _, args := range [][]string{
		{"apply", "-f", "-"}, {"delete", "dp", "web"}, {"rollback", "dp", "web", "--to", "2"},
	} {
		if code, out := other(d, args...); code != command.ExitPermission || !strings.Contains(out, "uid=4242") {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}

// Garbage on a socket harms nobody else.
func TestGarbageOnSockets(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc)
	d := start(t, dir)
	stream := openStream(t, d.xds(), "default.web")
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{d.socket(), d.xds()} {
		for _, junk := range []string{"\x00\xff\xfe", "GET / HTTP/9.9\r\n\r\n",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff",
			"PUT /meshes/x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", strings.Repeat("A", 1<<20)} {
			conn, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, junk) // the agent may close while we write
			_ = conn.(*net.UnixConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn) // until the agent gives it up
			conn.Close()
		}
	}
	write(t, dir+"/resources/more.yaml",
		strings.NewReplacer("type: Mesh\nname: default\n---\n", "", "name: web", "name: web-2").Replace(webDoc))
	eventually(t, "the agent still works", func() bool {
		code, _, _ := d.nearside("", "get", "dp", "web-2")
		return code == command.ExitOK
	})
	if code, out, _ := d.nearside("", "inspect", "dataplanes"); code != command.ExitOK ||
		strings.Count(out, "disconnected") != 1 {
		t.Errorf("the stream that was open: exit code %d\n%s", code, out)
	}
}
