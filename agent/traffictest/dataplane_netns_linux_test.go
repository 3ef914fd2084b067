package traffictest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// netns is a network namespace without a name: a thread lives in it and does what has to be done there. It is gone with
// the thread and the sockets that were opened in it, however the test ends.
type netns struct {
	path string // for ip(8)
	work chan func()
	done chan struct{}
}

// newNetns makes a namespace, and skips the test where that is not allowed.
func newNetns(t *testing.T) *netns {
	t.Helper()
	n := &netns{work: make(chan func()), done: make(chan struct{})}
	began := make(chan error, 1)
	go n.live(began)
	if err := <-began; err != nil {
		<-n.done
		t.Skipf("skipped: a network namespace cannot be made: %v", err)
	}
	t.Cleanup(func() {
		close(n.work)
		<-n.done
	})
	return n
}

func (n *netns) live(began chan<- error) {
	defer close(n.done)
	runtime.LockOSThread() // the thread ends with the goroutine, unless it is back where it was
	home, err := os.Open("/proc/thread-self/ns/net")
	if err == nil {
		defer home.Close()
		err = unix.Unshare(unix.CLONE_NEWNET)
	}
	if err != nil {
		runtime.UnlockOSThread()
		began <- err
		return
	}
	n.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	began <- nil
	for f := range n.work {
		f()
	}
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
}

// do runs f in the namespace: the sockets that it opens and the processes that it starts are there.
func (n *netns) do(f func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); f() }
	<-done
}

// run runs a program in the namespace on an input. It skips the test where the kernel has not what that needs.
func (n *netns) run(t *testing.T, input, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out []byte
	var err error
	n.do(func() { out, err = cmd.CombinedOutput() })
	for _, missing := range []string{"not supported", "Unknown device type"} {
		if err != nil && strings.Contains(string(out), missing) {
			t.Skipf("skipped: the kernel is built without something that the test needs: %s: %s", name, out)
		}
	}
	if err != nil {
		t.Fatalf("%s %s: %v: %s\non\n%s", name, strings.Join(args, " "), err, out, input)
	}
}

// The node of the tests and the router behind which everything else lies.
const (
	nodeV4, nodeV6, nodeLink       = "10.77.0.2", "fd77::2", "02:00:00:00:00:02"
	routerV4, routerV6, routerLink = "10.77.0.1", "fd77::1", "02:00:00:00:00:01"

	redirectPort = 15001
	ownMark      = 0x6e73 // of what the proxy sends: it is not redirected
)

// newNode makes two namespaces: a node whose TCP connections are redirected to the port of its proxy, as a transparent
// proxy has it, and the internet, which has the addresses. It skips the test where the system does not allow it.
func newNode(t *testing.T, addresses []string) (node, internet *netns) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: namespaces and redirections need root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %s is not on PATH (Debian: apt-get install iproute2 nftables)", tool)
		}
	}
	before := namespaces(t)
	t.Cleanup(func() {
		if after := namespaces(t); len(after) != 1 || len(before) != 1 {
			t.Errorf("threads are in the namespaces %q, before the test in %q", after, before)
		}
	})
	node, internet = newNetns(t), newNetns(t)
	// The two ends know each other's addresses on the link: asking for them costs a second where a question is lost.
	node.run(t, fmt.Sprintf(`link set lo up
link add eth0 address %[1]s type veth peer name eth0 address %[2]s netns %[3]s
addr add %[4]s/24 dev eth0
addr add %[5]s/64 dev eth0 nodad
link set eth0 up
`, nodeLink, routerLink, internet.path, nodeV4, nodeV6), "ip", "-batch", "-")
	var b strings.Builder
	fmt.Fprintf(&b, "link set lo up\naddr add %s/24 dev eth0\naddr add %s/64 dev eth0 nodad\nlink set eth0 up\n", routerV4, routerV6)
	fmt.Fprintf(&b, "neigh add %s lladdr %s dev eth0\nneigh add %s lladdr %s dev eth0\n", nodeV4, nodeLink, nodeV6, nodeLink)
	for _, a := range addresses {
		if strings.Contains(a, ":") {
			a += "/128 nodad"
		}
		fmt.Fprintf(&b, "addr add dev lo %s\n", a)
	}
	internet.run(t, b.String(), "ip", "-batch", "-")
	node.run(t, fmt.Sprintf("neigh add %[1]s lladdr %[3]s dev eth0\nneigh add %[2]s lladdr %[3]s dev eth0\nroute add default via %[1]s\nroute add default via %[2]s\n",
		routerV4, routerV6, routerLink), "ip", "-batch", "-")
	node.run(t, fmt.Sprintf(`table inet redirection {
	chain output {
		type nat hook output priority -100; policy accept;
		meta mark %#x return
		oifname "lo" return
		meta l4proto tcp redirect to :%d
	}
}
`, ownMark, redirectPort), "nft", "-f", "-")
	return node, internet
}

// namespaces lists the network namespaces that threads of this process are in.
func namespaces(t *testing.T) []string {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	seen := map[string]bool{}
	for _, path := range threads {
		if ns, err := os.Readlink(path); err == nil && !seen[ns] { // a thread may have ended
			seen[ns] = true
			out = append(out, ns)
		}
	}
	return out
}
