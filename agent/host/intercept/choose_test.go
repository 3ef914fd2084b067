package intercept_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	mdns "github.com/miekg/dns"
	"github.com/nearside-mesh/nearside/agent/host/intercept"
)

// redirectedFor returns the families and protocols for which a user's canaries reach the agent at
// all servers.
func (w *world) redirectedFor(t *testing.T, uid int) string {
	t.Helper()
	list, err := intercept.SendCanaries(t.Context(), w.ns, uid)
	if err != nil {
		t.Fatal(err)
	}
	var out, lost []string
	for _, c := range list {
		if path := c.Family + "/" + c.Protocol; !c.Redirected {
			lost = append(lost, path)
		} else if !slices.Contains(out, path) {
			out = append(out, path)
		}
		if !c.Redirected && c.Reason == "" {
			t.Errorf("a canary over %s and %s to %s is lost without a reason", c.Family, c.Protocol, c.Server)
		}
	}
	return strings.Join(slices.DeleteFunc(out, func(path string) bool { return slices.Contains(lost, path) }), " ")
}

const all = "IPv4/udp IPv4/tcp IPv6/udp IPv6/tcp"

func TestUsers(t *testing.T) {
	w := newWorld(t)
	p := w.agent(t, w.node)
	for _, c := range []struct {
		name string
		spec intercept.Spec
		want map[int]string // by user
	}{
		{"everybody", intercept.Spec{DNSPort: 15053}, map[int]string{-1: all, 1234: all}},
		{"one user", intercept.Spec{DNSPort: 15053, Users: []uint32{1234}}, map[int]string{-1: "", 1234: all, 1235: ""}},
		{"all but one", intercept.Spec{DNSPort: 15053, ExcludeUsers: []uint32{1235}},
			map[int]string{-1: all, 1234: all, 1235: ""}},
		{"Envoy too", intercept.Spec{DNSPort: 15053, Outbound: 15001, EnvoyUsers: []uint32{1236}},
			map[int]string{1234: all, 1236: all}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.install(t, c.spec)
			t.Cleanup(func() {
				if _, err := intercept.Uninstall(w.ns, w.dir); err != nil {
					t.Error(err)
				}
			})
			p.awaitNext("state=active")
			for uid, want := range c.want {
				if got := w.redirectedFor(t, uid); got != want {
					t.Errorf("uid %d is redirected over %q, want %q", uid, got, want)
				}
			}
		})
		p.awaitNext("interception was uninstalled")
	}
}

// TestCgroups: names of one cgroup are redirected, and of its replacement.
func TestCgroups(t *testing.T) {
	w := newWorld(t)
	var root string
	for line := range strings.Lines(read(t, "/proc/self/mounts")) {
		if f := strings.Fields(line); f[2] == "cgroup2" {
			root = f[1]
		}
	}
	if root == "" {
		t.Skip("skipped: no cgroup2 file system is mounted")
	}
	name := fmt.Sprintf("nearside-test-%d", os.Getpid())
	at := filepath.Join(root, name, "app")
	makeCgroup := func() {
		t.Helper()
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Skipf("skipped: a cgroup cannot be made: %v", err)
		}
	}
	t.Cleanup(func() { _, _ = os.Remove(at), os.Remove(filepath.Dir(at)) })
	inCgroup := func(server string) string {
		t.Helper()
		f, err := os.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		conf := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(conf, []byte("nameserver "+server+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("unshare",
			"-m", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec getent ahostsv4 web.mesh`, conf)
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
		var out []byte
		w.node.do(func() { out, _ = cmd.CombinedOutput() })
		return string(out)
	}
	path, err := intercept.CgroupPath(at)
	if err != nil || path != name+"/app" {
		t.Fatalf("the path of %s is %q, %v", at, path, err)
	}
	if out := w.install(t, intercept.Spec{DNSPort: 15053, Cgroups: []string{path}}); len(out.Notes) != 1 ||
		!strings.Contains(out.Notes[0], "does not exist") {
		t.Errorf("notes on a cgroup that does not exist: %q", out.Notes)
	}
	p := w.agent(t, w.node)
	line := p.await("state=active", 0)
	for _, when := range []string{"made", "made anew"} {
		makeCgroup()
		line = p.await(fmt.Sprintf("{%s %d}", path, inode(t, at)), line)
		for _, server := range []string{outsideV4, outsideV6, "127.0.0.53"} {
			if out := inCgroup(server); !strings.Contains(out, outsideV4+" ") {
				t.Errorf("%s, in the cgroup, by %s: %q", when, server, out)
			}
		}
		if got := w.node.ask(t, "udp", outsideV4+":53", "web.mesh", mdns.TypeA); got != "NXDOMAIN" {
			t.Errorf("%s, outside of the cgroup: %s", when, got)
		}
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
		line = p.await(fmt.Sprintf("{%s 0}", path), line)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Ino
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// whole returns a spec that uses all features.
func whole() intercept.Spec {
	return intercept.Spec{DNSPort: 15053, Users: []uint32{1234, 33}, ExcludeUsers: []uint32{0, 998}, Outbound: 15001,
		Virtual: 15002, VirtualCIDRs: []netip.Prefix{netip.MustParsePrefix("240.0.0.0/6"),
			netip.MustParsePrefix("fd00:fd00::/64")},
		EnvoyUsers:           []uint32{5678},
		ExcludeOutboundPorts: []uint16{9901, 22},
		ExcludeOutboundCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16"),
			netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("ff00::/8")}}
}

// TestPods: the agent serves the namespaces of pods, and releases them when the pods end.
func TestPods(t *testing.T) {
	w := newWorld(t)
	p := w.agent(t, w.node)
	w.node.run(t, "", "ip", "addr", "add", "198.51.100.53/32", "dev", "lo")
	realServer(t, w.node, "198.51.100.53:53", realHosts()...)
	var pods []*netNS
	for i := range 3 {
		pod := newNetNS(t)
		pod.run(t, fmt.Sprintf("link add eth0 type veth peer name pod%d netns %s\naddr add 10.99.%d.2/24 dev eth0\n"+
			"link set eth0 up\nroute add default via 10.99.%[3]d.1\n", i, w.node.path, i), "ip", "-batch", "-")
		w.node.run(t, fmt.Sprintf("addr add 10.99.%[1]d.1/24 dev pod%[1]d\nlink set pod%[1]d up\n", i), "ip", "-batch", "-")
		if _, err := intercept.Install(pod.open(t), &intercept.Spec{DNSPort: 15053}, w.dir); err != nil {
			t.Fatal(err)
		}
		p.awaitNext("state=active")
		pods = append(pods, pod)
	}
	for i, pod := range pods {
		for _, network := range []string{"udp", "tcp"} {
			if got := pod.ask(t, network, "198.51.100.53:53", "web.mesh", mdns.TypeA); got != outsideV4 {
				t.Errorf("pod %d over %s: %s", i, network, got)
			}
		}
		if out, err := pod.with(t, "nameserver 198.51.100.53\n", "getent", "ahostsv4", "real.example"); err != nil ||
			!strings.Contains(out, realV4) {
			t.Errorf("pod %d: getent: %v: %s", i, err, out)
		}
	}
	if got := w.node.ask(t, "udp", outsideV4+":53", "web.mesh", mdns.TypeA); got != "NXDOMAIN" {
		t.Errorf("the node itself, where nothing is installed: %s", got)
	}
}

// TestPodEnds: the agent releases the namespace of a pod that ended.
func TestPodEnds(t *testing.T) {
	w := newWorld(t)
	p := w.agent(t, w.node)
	pod := newNetNS(t)
	w.installIn(t, pod)
	p.awaitNext("state=active")
	pod.close()
	p.awaitNext("network namespace no longer exists")
	if list, err := os.ReadDir(w.dir); err != nil || len(list) != 1 {
		t.Errorf("records after the end of the pod: %v, %v", list, err)
	}
}

// TestAddressOfPodIsFreed: the agent redirects DNS in a pod when another process of the pod leaves
// the address of the resolver.
func TestAddressOfPodIsFreed(t *testing.T) {
	w := newWorld(t)
	p := w.agent(t, w.node)
	pod := newNetNS(t)
	var other *net.UDPConn
	var err error
	pod.do(func() { other, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 15053}) })
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	w.installIn(t, pod)
	p.awaitNext("state=partly")
	_ = other.Close()
	p.awaitNext("state=active")
	if got := pod.ask(t, "udp", "127.0.0.1:15053", "web.mesh", mdns.TypeA); got != outsideV4 {
		t.Errorf("web.mesh: %s", got)
	}
}
