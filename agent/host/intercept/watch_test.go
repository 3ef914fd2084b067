package intercept_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
)

// watching is a running watcher. Its log is that of a process.
type watching struct {
	*intercept.Watcher
	*process
}

func (w *world) watch(t *testing.T, limit int, rules ...intercept.Rule) watching {
	t.Helper()
	for i := range rules {
		if err := rules[i].Validate(); err != nil {
			t.Fatal(err)
		}
	}
	p := newProcess(t)
	out := watching{intercept.NewWatcher(intercept.WatcherOptions{Dir: w.dir, Rules: rules, Limit: limit,
		Log: slog.New(slog.NewTextHandler(lineWriter{p}, nil))}), p}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer close(p.end)
		if err := out.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { stop(); <-p.end })
	return out
}

func newProcess(t testing.TB) *process {
	return &process{t: t, bell: make(chan struct{}), end: make(chan struct{})}
}

func (p *process) add(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, line)
	close(p.bell)
	p.bell = make(chan struct{})
}

type lineWriter struct{ p *process }

func (l lineWriter) Write(b []byte) (int, error) {
	l.p.add(strings.TrimSpace(string(b)))
	return len(b), nil
}

var _ io.Writer = lineWriter{}

// mount gives a namespace a path.
func (n *netNS) mount(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, nil, 0o444), unix.Mount(n.path, path, "", unix.MS_BIND, "")); err != nil {
		t.Skipf("skipped: a namespace cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
}

// TestWatchNetns: namespaces whose path matches a rule are redirected, and no others.
func TestWatchNetns(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	agent := w.agent(t, w.node)
	rule := intercept.Rule{Name: "pods", Netns: dir + "/pod-*", Spec: intercept.Spec{DNSPort: 15053}}
	run := w.watch(t, 2, rule, intercept.Rule{Name: "later", Netns: dir + "/*-1", Spec: intercept.Spec{DNSPort: 15153}})
	var pods []*netNS
	for i := range 2 {
		pods = append(pods, newNetNS(t))
		pods[i].run(t, "addr add 10.1.2.3/32 dev lo\nroute add default dev lo src 10.1.2.3\n", "ip", "-batch", "-")
		pods[i].mount(t, fmt.Sprintf("%s/pod-%d", dir, i))
		run.awaitNext("installed interception by a rule")
		agent.awaitNext("state=active")
		if got := pods[i].ask(t, "udp", "198.51.100.53:53", "web.mesh", mdns.TypeA); got != outsideV4 {
			t.Errorf("pod %d: %s", i, got)
		}
	}
	other, manual, third := newNetNS(t), newNetNS(t), newNetNS(t)
	other.mount(t, dir+"/other")
	if _, err := intercept.Install(manual.open(t), &intercept.Spec{DNSPort: 15053, Users: []uint32{7}},
		w.dir); err != nil {
		t.Fatal(err)
	}
	byCommand := manual.rules(t)
	manual.mount(t, dir+"/pod-manual")
	third.mount(t, dir+"/pod-third")
	run.awaitNext("2 namespaces are installed by rules, which is the maximum")
	want := []intercept.RuleStatus{{Name: "pods", Pattern: "netns " + dir + "/pod-*", Installed: 2, Others: 1, Refused: 1,
		Reason: "2 namespaces are installed by rules, which is the maximum; use narrower patterns"},
		{Name: "later", Pattern: "netns " + dir + "/*-1", Others: 1}}
	if got := run.Status(); !slices.Equal(got, want) {
		t.Errorf("status: %+v, want %+v", got, want)
	}
	if rules := other.rules(t) + third.rules(t); rules != "" {
		t.Errorf("installed in namespaces that no rule selects or beyond the limit:\n%s", rules)
	}
	if got := manual.rules(t); got != byCommand {
		t.Errorf("a rule changed the installation of a command:\n%s\nwas:\n%s", got, byCommand)
	}
	// Changed options replace the ruleset, and a removed rule removes it.
	rule.Spec.Inbound = 15006
	run.SetRules([]intercept.Rule{rule})
	run.awaitNext("installed interception by a rule")
	run.awaitNext("installed interception by a rule")
	if rules := pods[0].rules(t); !strings.Contains(rules, "redirect to :15006") {
		t.Errorf("with other options:\n%s", rules)
	}
	rule.Netns = dir + "/pod-1"
	run.SetRules([]intercept.Rule{rule})
	run.awaitNext("removed interception that no rule selects")
	if a, b := pods[0].rules(t), pods[1].rules(t); a != "" || b == "" {
		t.Errorf("with another pattern, in the first namespace:\n%s\nin the second:\n%s", a, b)
	}
	run.SetRules(nil)
	run.awaitNext("removed interception that no rule selects")
	if rules := pods[1].rules(t); rules != "" {
		t.Errorf("without rules:\n%s", rules)
	}
}

// testCgroup makes a cgroup with children, and returns its path and its name below the root.
func testCgroup(t *testing.T, children ...string) (path, name string) {
	t.Helper()
	var root string
	for line := range strings.Lines(read(t, "/proc/self/mounts")) {
		if f := strings.Fields(line); f[2] == "cgroup2" {
			root = f[1]
		}
	}
	if root == "" {
		t.Skip("skipped: no cgroup2 file system is mounted")
	}
	name = fmt.Sprintf("nearside-test-%d", os.Getpid())
	path = filepath.Join(root, name)
	for _, c := range children {
		if err := os.MkdirAll(filepath.Join(path, c), 0o755); err != nil {
			t.Skipf("skipped: a cgroup cannot be made: %v", err)
		}
	}
	t.Cleanup(func() {
		for _, c := range children {
			_ = os.Remove(filepath.Join(path, c))
		}
		_ = os.Remove(path)
	})
	return path, name
}

// spawn starts a program in a cgroup. It ends with its standard input.
func spawn(t *testing.T, cgroup string, args ...string) *exec.Cmd {
	t.Helper()
	f, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Skipf("skipped: a program cannot be started in a cgroup: %v", err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// TestWatchCgroup: namespaces of processes in a cgroup are redirected as long as a process is in
// them, but not the namespace of the host.
func TestWatchCgroup(t *testing.T) {
	w := newWorld(t)
	cgroup, name := testCgroup(t, "pod", "host")
	host, err := intercept.OpenNamespace("")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	agent := w.agent(t, w.node)
	run := w.watch(t, 0, intercept.Rule{Name: "pods", Cgroup: name + "/*", Spec: intercept.Spec{DNSPort: 15053}})
	spawn(t, cgroup+"/host", "sleep", "1000")
	// The program enters its namespace after the event of its cgroup.
	first := spawn(t, cgroup+"/pod", "unshare", "-n", "sh", "-c", "ip link set lo up && exec sleep 1000")
	run.awaitNext("installed interception by a rule")
	agent.awaitNext("state=active")
	ns, err := intercept.OpenNamespace(fmt.Sprintf("/proc/%d/ns/net", first.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	r, err := intercept.Inspect(t.Context(), ns, w.dir)
	if err != nil || r.State != intercept.StateActive || r.Rule != "pods" {
		t.Errorf("the report: %+v, %v", r, err)
	}
	if got := run.Status(); len(got) != 1 || got[0].Installed != 1 || got[0].Refused != 1 || got[0].Reason != "" {
		t.Errorf("status: %+v", got)
	}
	if r, err := intercept.Inspect(t.Context(), host, w.dir); err != nil || r.State != intercept.StateNone {
		t.Errorf("the host: %+v, %v", r, err)
	}
	// Another process of the namespace outlives the first one.
	second := spawn(t, cgroup+"/pod", "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", first.Process.Pid), "sleep", "1000")
	for path := fmt.Sprintf("/proc/%d/ns/net", second.Process.Pid); inode(t, path) != ns.Inode; {
	}
	ns.Close()
	kill(t, first)
	agent.awaitNext("has another path")
	if list, errs := intercept.Records(w.dir); len(list) != 1 || len(errs) > 0 ||
		list[0].Netns != fmt.Sprintf("/proc/%d/ns/net", second.Process.Pid) || list[0].Rule != "pods" {
		t.Errorf("records: %+v, %v", list, errs)
	}
	kill(t, second)
	agent.awaitNext("network namespace no longer exists")
	if list, errs := intercept.Records(w.dir); len(list)+len(errs) > 0 {
		t.Errorf("records of vanished namespaces: %+v, %v", list, errs)
	}
	// Namespaces that vanish at any time leave nothing.
	for range 10 {
		kill(t, spawn(t, cgroup+"/pod", "unshare", "-n", "sleep", "1000"))
	}
	// The rule may have reached some of them, so only the events of this one count.
	last := spawn(t, cgroup+"/pod", "unshare", "-n", "sh", "-c", "ip link set lo up && exec sleep 1000")
	netns := fmt.Sprintf("netns=/proc/%d/ns/net", last.Process.Pid)
	run.awaitNext(netns)
	agent.awaitNext(netns + " state=active")
	if got := run.Status(); len(got) != 1 || got[0].Installed != 1 || got[0].Failed != 0 || got[0].Reason != "" {
		t.Errorf("status after vanished namespaces: %+v", got)
	}
}

func TestRuleValidate(t *testing.T) {
	for _, c := range []struct {
		rule intercept.Rule
		want string // "" if valid
	}{
		{intercept.Rule{Cgroup: "kubepods.slice/*"}, ""},
		{intercept.Rule{Cgroup: "system.slice/docker-*.scope"}, ""},
		{intercept.Rule{Netns: "/run/netns/cni-*"}, ""},
		{intercept.Rule{}, "either cgroup or netns"},
		{intercept.Rule{Cgroup: "a", Netns: "/a"}, "either cgroup or netns"},
		{intercept.Rule{Cgroup: "*/b"}, "selects all processes"},
		{intercept.Rule{Cgroup: "."}, "selects all processes"},
		{intercept.Rule{Cgroup: "/a"}, "not a clean path"},
		{intercept.Rule{Cgroup: "../a"}, "not a clean path"},
		{intercept.Rule{Cgroup: "a/[b"}, "not a pattern"},
		{intercept.Rule{Netns: "run/netns/*"}, "not a clean absolute path"},
		{intercept.Rule{Netns: "/proc/*/ns/net"}, "below /proc"},
	} {
		err := c.rule.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.rule, err, c.want)
		}
	}
}
