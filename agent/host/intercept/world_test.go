package intercept_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/dns/table"
)

// patience is the timeout for events that must happen, also on a busy machine.
const patience = 2 * time.Minute

// netNS is a network namespace with its thread. It ends with the thread and everything that was
// opened in it.
type netNS struct {
	path string
	work chan func()
	done chan struct{}
	end  sync.Once
}

func newNetNS(t testing.TB) *netNS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: network namespaces and nftables need root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %s is not on PATH (Debian: apt-get install iproute2 nftables)", tool)
		}
	}
	n := &netNS{work: make(chan func()), done: make(chan struct{})}
	began := make(chan error)
	go func() {
		defer close(n.done)
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		n.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		began <- err
		for f := range n.work {
			f()
		}
	}()
	if err := <-began; err != nil {
		close(n.work)
		t.Skipf("skipped: a network namespace cannot be made: %v", err)
	}
	t.Cleanup(n.close)
	n.run(t, "", "ip", "link", "set", "lo", "up")
	return n
}

// close ends the namespace.
func (n *netNS) close() {
	n.end.Do(func() { close(n.work) })
	<-n.done
}

func (n *netNS) do(f func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); f() }
	<-done
}

// output runs a program in the namespace.
func (n *netNS) output(input, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out []byte
	var err error
	n.do(func() { out, err = cmd.CombinedOutput() })
	return string(out), err
}

func (n *netNS) run(t testing.TB, input, name string, args ...string) string {
	t.Helper()
	out, err := n.output(input, name, args...)
	if err != nil && strings.Contains(out, "not supported") {
		t.Skipf("skipped: the kernel lacks what %s needs: %s", name, out)
	}
	if err != nil {
		t.Fatalf("%s %s: %v: %s\n%s", name, strings.Join(args, " "), err, out, input)
	}
	return out
}

// open opens the namespace for the package.
func (n *netNS) open(t testing.TB) *intercept.Namespace {
	t.Helper()
	x, err := intercept.OpenNamespace(n.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

// rules returns the ruleset as listed by nft, without counters and timers.
func (n *netNS) rules(t testing.TB) string {
	t.Helper()
	return stable(n.run(t, "", "nft", "list", "ruleset"))
}

var moving = regexp.MustCompile(`(counter) packets \d+ bytes \d+| expires \w+`)

func stable(rules string) string { return moving.ReplaceAllString(rules, "$1") }

const (
	outsideV4, outsideV6 = "10.88.0.1", "fd88::1"
	otherV4              = "10.88.0.9" // another external server
	nodeV4, nodeV6       = "10.88.0.2", "fd88::2"
	realV4, realV6       = "203.0.113.7", "2001:db8::7" // of real.example, from the real servers
)

func realHosts() []table.Host {
	return []table.Host{{Name: "real.example",
		Addrs: []netip.Addr{netip.MustParseAddr(realV4), netip.MustParseAddr(realV6)}}}
}

// world is a node that is linked to an external network with the real name servers.
type world struct {
	outside, node *netNS
	ns            *intercept.Namespace // of the node
	dir           string               // of records
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{outside: newNetNS(t), node: newNetNS(t), dir: filepath.Join(t.TempDir(), intercept.DirName)}
	w.node.run(t, fmt.Sprintf("link add eth0 address 02:00:00:00:00:02 type veth peer name node address "+
		"02:00:00:00:00:01 netns %s\naddr add %s/24 dev eth0\naddr add %s/64 dev eth0 nodad\nlink set eth0 up\n",
		w.outside.path, nodeV4, nodeV6), "ip", "-batch", "-")
	w.outside.run(t,
		fmt.Sprintf("addr add %s/24 dev node\naddr add %s/24 dev node\naddr add %s/64 dev node nodad\nlink set node up\n",
			outsideV4, otherV4, outsideV6), "ip", "-batch", "-")
	// If the first packet is lost, neighbor discovery takes a second.
	for _, a := range []string{outsideV4, otherV4, outsideV6} {
		w.node.run(t, "", "ip", "neigh", "add", a, "lladdr", "02:00:00:00:00:01", "dev", "eth0")
	}
	w.outside.run(t,
		fmt.Sprintf("neigh add %s lladdr 02:00:00:00:00:02 dev node\nneigh add %s lladdr 02:00:00:00:00:02 dev node\n",
			nodeV4, nodeV6), "ip", "-batch", "-")
	w.node.run(t, "route add default via "+outsideV4+"\nroute add default via "+outsideV6+"\n", "ip", "-batch", "-")
	realServer(t, w.outside, outsideV4+":53", realHosts()...)
	realServer(t, w.outside, "["+outsideV6+"]:53", realHosts()...)
	realServer(t, w.node, "127.0.0.53:53", realHosts()...)
	w.ns = w.node.open(t)
	for _, server := range []string{outsideV4 + ":53", "[" + outsideV6 + "]:53"} { // a new link may lose packets at first
		c := w.node.socket(t, "udp", server)
		for range 100 {
			if lookupWithin(100*time.Millisecond, c, "real.example", mdns.TypeA) == realV4 {
				break
			}
		}
	}
	return w
}

func (w *world) install(t testing.TB, s intercept.Spec) *intercept.Installed {
	t.Helper()
	out, err := intercept.Install(w.ns, &s, w.dir)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// process is a running agent.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	mu   sync.Mutex
	log  []string
	bell chan struct{} // closed at the next log line
	end  chan struct{}
	line int // after the last match of awaitNext
}

// agent starts an agent in a namespace. It listens on the default port.
func (w *world) agent(t testing.TB, in *netNS, env ...string) *process {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+outsideV4+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return w.start(t, in, exec.Command(os.Args[0]), append([]string{resolvConf + "=" + conf, ownPort + "=15053"}, env...))
}

// agentAs starts an agent on the node as another user, from a copy of this program.
func (w *world) agentAs(t testing.TB, program string, uid uint32) *process {
	t.Helper()
	cmd := exec.Command(program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	for dir := w.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return w.start(t, w.node, cmd, []string{ownPort + "=15053"})
}

func (w *world) start(t testing.TB, in *netNS, cmd *exec.Cmd, env []string) *process {
	t.Helper()
	p := newProcess(t)
	p.cmd = cmd
	p.cmd.Env = append(append(os.Environ(), asAgent+"="+w.dir), env...)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = os.Stderr
	in.do(func() { err = p.cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.end)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.add(lines.Text())
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.end
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("the agent's log:\n%s", strings.Join(p.log, "\n"))
		}
	})
	return p
}

// await waits until the agent has logged a text, from a line on. It returns the following line.
func (p *process) await(text string, from int) int {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		p.mu.Lock()
		for i := from; i < len(p.log); i++ {
			if strings.Contains(p.log[i], text) {
				p.mu.Unlock()
				return i + 1
			}
		}
		bell := p.bell
		p.mu.Unlock()
		select {
		case <-bell:
		case <-p.end:
			p.t.Fatalf("the agent ended and did not log %q", text)
		case <-timeout:
			p.t.Fatalf("the agent did not log %q", text)
		}
	}
}

// awaitNext waits for a text after the previous one.
func (p *process) awaitNext(text string) {
	p.t.Helper()
	p.line = p.await(text, p.line)
}

// stop sends a signal to the agent, and waits until it ends.
func (p *process) stop(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s)
	<-p.end
}

// socket opens a connection in the namespace. UDP sockets stay open when the redirection changes.
func (n *netNS) socket(t testing.TB, network, server string) *mdns.Conn {
	t.Helper()
	var c net.Conn
	var err error
	n.do(func() { c, err = net.DialTimeout(network, server, patience) })
	if err != nil {
		t.Fatalf("connect to %s over %s: %v", server, network, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &mdns.Conn{Conn: c}
}

// lookup sends a query over a connection, and returns the address or the error.
func lookup(c *mdns.Conn, name string, kind uint16) string {
	return lookupWithin(patience, c, name, kind)
}

func lookupWithin(wait time.Duration, c *mdns.Conn, name string, kind uint16) string {
	q := new(mdns.Msg)
	q.SetQuestion(name+".", kind)
	_ = c.SetDeadline(time.Now().Add(wait))
	if err := c.WriteMsg(q); err != nil {
		return err.Error()
	}
	for {
		r, err := c.ReadMsg()
		if err != nil {
			return err.Error()
		}
		if r.Id != q.Id {
			continue
		}
		if r.Rcode != mdns.RcodeSuccess || len(r.Answer) == 0 {
			return mdns.RcodeToString[r.Rcode]
		}
		f := strings.Fields(r.Answer[0].String())
		return f[len(f)-1]
	}
}

// ask sends a query over a new connection.
func (n *netNS) ask(t testing.TB, network, server, name string, kind uint16) string {
	t.Helper()
	c := n.socket(t, network, server)
	defer c.Close()
	return lookup(c, name, kind)
}

// with runs a program in the namespace with a given resolv.conf.
func (n *netNS) with(t testing.TB, conf string, name string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	return n.output("", "unshare",
		append([]string{"-m", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, file, name}, args...)...)
}

// entries returns the namespace's conntrack entries that contain a text.
func (n *netNS) entries(t testing.TB, text string) (out []string) {
	t.Helper()
	var b []byte
	n.do(func() { b, _ = os.ReadFile("/proc/thread-self/net/nf_conntrack") })
	for line := range bytes.Lines(b) {
		if strings.Contains(string(line), text) {
			out = append(out, string(line))
		}
	}
	return out
}

// serveHTTP answers all requests to an address with a text.
func (n *netNS) serveHTTP(t testing.TB, at, text string) {
	t.Helper()
	var l net.Listener
	var err error
	n.do(func() { l, err = net.Listen("tcp", at) })
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(rw, text)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
}

// greeting connects as a user, and returns the text that the server sends.
func (n *netNS) greeting(t testing.TB, uid int, to string) string {
	t.Helper()
	var c net.Conn
	var err error
	n.do(func() {
		if _, err = unix.SetfsuidRetUid(uid); err == nil {
			c, err = net.DialTimeout("tcp", to, patience)
			_, _ = unix.SetfsuidRetUid(0)
		}
	})
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	b, _ := io.ReadAll(c)
	return string(b)
}
