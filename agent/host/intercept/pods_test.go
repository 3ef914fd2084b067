package intercept_test

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
)

// envoyIn starts a process in a namespace, which stands for an Envoy. end ends it.
func envoyIn(t testing.TB, n *netNS, attr *syscall.SysProcAttr) (e intercept.Envoy, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = attr
	var err error
	if n == nil {
		err = cmd.Start()
	} else {
		n.do(func() { err = cmd.Start() })
	}
	if err != nil {
		t.Skipf("skipped: a process cannot be started: %v", err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { _ = f.Close() })
	return intercept.Envoy{PID: int32(cmd.Process.Pid), Pidfd: f, UID: 5678}, end
}

// TestPodInstallation: the redirection of a pod is installed once, replaced when it changes, and
// adopted by a later agent. A command does not replace it, and it does not replace a command's.
func TestPodInstallation(t *testing.T) {
	w := newWorld(t)
	e, end := envoyIn(t, w.node, nil)
	if err := os.MkdirAll(filepath.Dir(w.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	w.greet(t, w.node, ":15001", "outbound")
	w.greet(t, w.node, ":15006", "inbound")
	for _, at := range []string{outsideV4, "[" + outsideV6 + "]"} {
		w.greet(t, w.outside, at+":80", "outside")
	}
	for _, port := range []string{"80", "9902", "8081"} {
		w.greet(t, w.node, ":"+port, "workload")
	}
	p := &intercept.Pods{Dir: w.dir}
	const dataplane = "Dataplane/default/web.shop"
	spec := intercept.Spec{Outbound: 15001, Inbound: 15006, ExcludeInboundPorts: []uint16{9902}}
	install := func(p *intercept.Pods, want bool) {
		t.Helper()
		inode, changed, err := p.Install(e, dataplane, spec)
		if err != nil || changed != want || inode != w.ns.Inode || !p.Has(inode, dataplane) {
			t.Fatalf("inode %d (want %d), changed %t, %v", inode, w.ns.Inode, changed, err)
		}
	}
	check := func(cases map[string]string) {
		t.Helper()
		for to, want := range cases {
			from := w.outside
			to, inside := strings.CutPrefix(to, "pod:")
			if inside {
				from = w.node
			}
			if got := from.greeting(t, 1234, to); got != want {
				t.Errorf("to %s: %s, want %s", to, got, want)
			}
		}
	}
	install(p, true)
	check(map[string]string{"pod:" + outsideV4 + ":80": "outbound", "pod:[" + outsideV6 + "]:80": "outbound",
		nodeV4 + ":80": "inbound", "[" + nodeV6 + "]:80": "inbound", nodeV4 + ":9902": "workload",
		nodeV4 + ":8081": "inbound"})
	if got := w.node.greeting(t, 5678, outsideV4+":80"); got != "outside" {
		t.Errorf("the Envoy itself: %s", got)
	}
	before := w.node.rules(t)
	install(&intercept.Pods{Dir: w.dir}, false) // of the next agent
	w.node.run(t, "", "nft", "delete", "table", "inet", "nearside")
	install(p, true)
	if after := w.node.rules(t); after != before {
		t.Errorf("reinstalled:\n%s\nwant\n%s", after, before)
	}

	// Probes come only from the node.
	spec.ProbePorts = []uint16{8081}
	other := newNetNS(t)
	other.run(t, "link add d0 type veth peer name d1\naddr add 10.5.5.5/24 dev d0\nlink set d0 up\n"+
		"link set d1 up\n", "ip", "-batch", "-")
	install(&intercept.Pods{Dir: w.dir, Host: other.path}, true)
	check(map[string]string{nodeV4 + ":8081": "inbound"})
	node := &intercept.Pods{Dir: w.dir, Host: w.outside.path}
	install(node, true)
	check(map[string]string{nodeV4 + ":8081": "workload", "[" + nodeV6 + "]:8081": "workload",
		nodeV4 + ":80": "inbound"})

	if _, err := intercept.Install(w.ns, &intercept.Spec{DNSPort: 15053}, w.dir); err == nil ||
		!strings.Contains(err.Error(), "nearside.io/redirect: pod") {
		t.Errorf("a command replaces it: %v", err)
	}
	if list := node.Dataplanes(); len(list) != 1 || list[0] != dataplane {
		t.Errorf("installed for %q", list)
	}
	if err := node.Remove(dataplane); err != nil || node.Has(w.ns.Inode, dataplane) {
		t.Errorf("removed: %v", err)
	}
	check(map[string]string{"pod:" + outsideV4 + ":80": "outside"})
	w.install(t, intercept.Spec{Outbound: 15001, EnvoyUsers: []uint32{1}})
	if _, _, err := node.Install(e, dataplane, spec); err == nil || !strings.Contains(err.Error(), "intercept uninstall") {
		t.Errorf("it replaces a command: %v", err)
	}
	end()
	if _, _, err := node.Install(e, dataplane, spec); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("for a process that has ended: %v", err)
	}
}

// TestPodsRefused: nothing is installed for processes that are not in a namespace of their own.
func TestPodsRefused(t *testing.T) {
	node, host := newNetNS(t), newNetNS(t)
	dir := filepath.Join(t.TempDir(), intercept.DirName)
	inNode, _ := envoyIn(t, node, nil)
	here, _ := envoyIn(t, nil, nil)
	spec := intercept.Spec{Outbound: 15001, Inbound: 15006}
	for _, c := range []struct {
		envoy intercept.Envoy
		host  string
		want  string
	}{
		{inNode, node.path, "network namespace of the node"},
		{here, host.path, "network namespace of the agent"},
		{intercept.Envoy{PID: inNode.PID}, host.path, "hostPID"},
		{intercept.Envoy{Pidfd: inNode.Pidfd}, host.path, "hostPID"},
		{inNode, "/proc/1/ns/missing", "find the network namespace of the node"},
	} {
		p := &intercept.Pods{Dir: dir, Host: c.host}
		if _, _, err := p.Install(c.envoy, "Dataplane/default/web", spec); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.envoy, err, c.want)
		}
	}
	if rules := node.rules(t); strings.Contains(rules, "nearside") {
		t.Errorf("installed:\n%s", rules)
	}
}

// TestPodsOfUserNamespace: the rules name the user of an Envoy as the user namespace of its pod
// does, so that its connections are not redirected back to it.
func TestPodsOfUserNamespace(t *testing.T) {
	host := newNetNS(t)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 65536}}
	e, _ := envoyIn(t, nil, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: ids, GidMappings: ids})
	e.UID = 105678
	p := &intercept.Pods{Dir: filepath.Join(t.TempDir(), intercept.DirName), Host: host.path}
	if _, _, err := p.Install(e, "Dataplane/default/web", intercept.Spec{Outbound: 15001, Inbound: 15006}); err != nil {
		t.Fatal(err)
	}
	records, errs := intercept.Records(p.Dir)
	if len(errs) > 0 || len(records) != 1 || !slices.Equal(records[0].Spec.EnvoyUsers, []uint32{5678}) {
		t.Errorf("records %+v, %v", records, errs)
	}
	e.UID = 5678
	if _, _, err := p.Install(e, "Dataplane/default/web", intercept.Spec{Outbound: 15001, Inbound: 15006}); err == nil ||
		!strings.Contains(err.Error(), "not mapped") {
		t.Errorf("an unmapped user: %v", err)
	}
}

// TestHostAddresses: probes come from all addresses of the node except local ones.
func TestHostAddresses(t *testing.T) {
	n := newNetNS(t)
	n.run(t, "link add d0 type veth peer name d1\naddr add 10.5.5.5/24 dev d0\naddr add fd05::5/64 dev d0 nodad\n"+
		"addr add 169.254.3.3/16 dev d0\nlink set d0 up\nlink set d1 up\n", "ip", "-batch", "-")
	got, err := (&intercept.Pods{Host: n.path}).HostAddresses()
	want := []netip.Prefix{netip.MustParsePrefix("10.5.5.5/32"), netip.MustParsePrefix("fd05::5/128")}
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%v, %v", got, err)
	}
}
