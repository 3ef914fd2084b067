package traffictest_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// netns is an unnamed network namespace. One thread stays in it and runs the functions passed to
// do. The kernel removes the namespace when the thread and the sockets opened in it are gone,
// however the test ends.
type netns struct {
	path string // as an argument of ip(8)
	work chan func()
	done chan struct{}
	port atomic.Uint32 // source port of the last client
}

// newNetns creates a namespace. It skips the test if the system does not permit that.
func newNetns(t testing.TB) *netns {
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
	runtime.LockOSThread() // the thread ends with the goroutine, unless it is unlocked
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

// do runs f in the namespace, so the sockets that f opens and the processes that it starts belong
// to the namespace.
func (n *netns) do(f func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); f() }
	<-done
}

// run runs a program with the given input in the namespace. It skips the test if the kernel lacks a
// feature that the program needs.
func (n *netns) run(t testing.TB, input, name string, args ...string) {
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

// The test network consists of a router, which has all addresses outside the mesh, and nodes on a
// shared link with the router.
const (
	routerV4, routerV6 = "10.77.0.1", "fd77::1"

	redirectOutbound, redirectInbound, redirectVirtual = 15001, 15006, 15002
	envoyUser                                          = 61234 // traffic of this user is not redirected
)

func nodeV4(n int) string { return fmt.Sprintf("10.77.0.%d", n) }
func nodeV6(n int) string { return fmt.Sprintf("fd77::%x", n) }

// The router has number 1 on the link. Nodes have the other numbers.
const lastNode = 9

func linkOf(n int) string { return fmt.Sprintf("02:00:00:00:00:%02x", n) }

// neighbours returns static entries for all other addresses on the link. Resolving them dynamically
// takes a second if a request is lost.
func neighbours(n int, device string) string {
	var b strings.Builder
	for i := 1; i <= lastNode; i++ {
		if i != n {
			fmt.Fprintf(&b, "neigh add %[1]s lladdr %[3]s dev %[4]s\nneigh add %[2]s lladdr %[3]s dev %[4]s\n",
				nodeV4(i), nodeV6(i), linkOf(i), device)
		}
	}
	return b.String()
}

// network holds the namespaces of a test.
type network struct {
	t      testing.TB
	router *netns // represents the internet
	nodes  map[int]*netns
	// virtual holds the nodes on which connections to virtual addresses have their own port.
	virtual map[int]bool
}

// networks is the number of networks of running tests. A network begins and ends with the lock, so
// that none begins while another one checks that no namespace remains.
var networks struct {
	sync.Mutex
	n int
}

// newNetwork creates the router with all addresses outside the mesh. It skips the test if the
// system does not permit that.
func newNetwork(t testing.TB, addresses []string) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: namespaces and redirections need root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %s is not on PATH (Debian: apt-get install iproute2 nftables)", tool)
		}
	}
	var before []string
	networks.Lock()
	if networks.n++; networks.n == 1 {
		before = namespaces(t)
	}
	networks.Unlock()
	t.Cleanup(func() {
		networks.Lock()
		defer networks.Unlock()
		if networks.n--; networks.n > 0 {
			return // a parallel test has namespaces
		}
		if after := namespaces(t); len(after) != 1 || len(before) > 1 {
			t.Errorf("threads are in the namespaces %q, before the test in %q", after, before)
		}
	})
	w := &network{t: t, router: newNetns(t), nodes: map[int]*netns{}}
	var b strings.Builder
	fmt.Fprintf(&b, "link set lo up\nlink add br0 address %s type bridge\naddr add %s/24 dev br0\n"+
		"addr add %s/64 dev br0 nodad\nlink set br0 up\n%s", linkOf(1), routerV4, routerV6, neighbours(1, "br0"))
	for _, a := range addresses {
		if strings.Contains(a, ":") {
			a += "/128 nodad"
		}
		fmt.Fprintf(&b, "addr add dev lo %s\n", a)
	}
	w.router.run(t, b.String(), "ip", "-batch", "-")
	return w
}

// node creates a namespace on the link. It sends its DNS queries to the router. If redirected is
// true, its inbound and outbound TCP connections go to its proxy, except those that the proxy
// opens.
func (w *network) node(n int, redirected bool) *netns {
	w.t.Helper()
	ns := newNetns(w.t)
	w.nodes[n] = ns
	ns.run(w.t, fmt.Sprintf(`link set lo up
addr add ::6/128 dev lo
link add eth0 address %[5]s type veth peer name veth%[1]d netns %[2]s
addr add %[3]s/24 dev eth0
addr add %[4]s/64 dev eth0 nodad
link set eth0 up
`, n, w.router.path, nodeV4(n), nodeV6(n), linkOf(n)), "ip", "-batch", "-")
	w.router.run(w.t, fmt.Sprintf("link set veth%[1]d master br0\nlink set veth%[1]d up\n", n), "ip", "-batch", "-")
	ns.run(w.t, neighbours(n, "eth0")+fmt.Sprintf("route add default via %s\nroute add default via %s\n",
		routerV4, routerV6), "ip", "-batch", "-")
	rules := "\tchain output {\n\t\ttype nat hook output priority -100; policy accept;\n\t\tip protocol udp udp dport " +
		"53 dnat ip to " + routerV4 + ":53\n\t\tip6 nexthdr udp udp dport 53 dnat ip6 to [" + routerV6 + "]:53\n\t}\n"
	if redirected {
		w.redirect(ns, w.virtual[n])
	}
	// Nothing listens on virtual addresses.
	rules += fmt.Sprintf("\tchain refuse {\n\t\ttype filter hook output priority 0; policy accept;\n"+
		"\t\tmeta skuid %[1]d ip daddr 240.0.0.0/4 meta l4proto tcp reject with tcp reset\n"+
		"\t\tmeta skuid %[1]d ip6 daddr fd00::/16 meta l4proto tcp reject with tcp reset\n\t}\n", envoyUser)
	ns.run(w.t, "table inet redirection {\n"+rules+"}\n", "nft", "-f", "-")
	return ns
}

// redirect redirects TCP in the same way as nearside intercept.
func (w *network) redirect(ns *netns, virtual bool) {
	w.t.Helper()
	at, err := intercept.OpenNamespace(ns.path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer at.Close()
	spec := intercept.Spec{Outbound: redirectOutbound, Inbound: redirectInbound, EnvoyUsers: []uint32{envoyUser}}
	if virtual {
		spec.Virtual, spec.VirtualCIDRs = redirectVirtual, virtualip.DefaultRanges().Prefixes()
	}
	if _, err := intercept.Install(at, &spec, filepath.Join(w.t.TempDir(), intercept.DirName)); err != nil {
		w.t.Fatal(err)
	}
}

// dial opens a connection in a namespace from a source port that no earlier connection has used. If
// two connections used the same port, the kernel could change the port of the second one when it
// redirects the connection, and the test could not distinguish them.
func (n *netns) dial(at netip.AddrPort) (c net.Conn, err error) {
	const first, last = 20000, 32767 // below the kernel's ephemeral ports
	from := &net.TCPAddr{Port: first + int(n.port.Add(1))%(last-first)}
	n.do(func() {
		c, err = (&net.Dialer{LocalAddr: from, Timeout: agenttest.Patience, KeepAlive: -1}).Dial("tcp", at.String())
	})
	return c, err
}

// listen opens a socket in a namespace. The address does not have to exist there.
func (n *netns) listen(at string) (l net.Listener, err error) {
	n.do(func() { l, err = net.Listen("tcp", at) })
	return l, err
}

// namespaces lists the network namespaces of the threads of this process.
func namespaces(t testing.TB) []string {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	seen := map[string]bool{}
	for _, path := range threads {
		if ns, err := os.Readlink(path); err == nil && !seen[ns] { // a thread can end meanwhile
			seen[ns] = true
			out = append(out, ns)
		}
	}
	return out
}
