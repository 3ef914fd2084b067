package gossip

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// process is a node in its own process and network namespace. It executes commands of the test.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	reply *bufio.Reader
}

// memberEnv is the number of the node in a process started by [newProcess].
const memberEnv = "NEARSIDE_TEST_MEMBER"

func memberAddr(i int) string { return fmt.Sprintf("10.78.0.%d:7946", i) }

// newProcess starts this test binary in a new network namespace. It skips the test if the system
// does not permit that.
func newProcess(t *testing.T, i int) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], "-test.run=^TestMemberProcess$")}
	p.cmd.Env = append(os.Environ(), fmt.Sprint(memberEnv, "=", i))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, replies, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.ExtraFiles, p.reply = []*os.File{replies}, bufio.NewReader(out)
	err = p.cmd.Start()
	_ = replies.Close()
	if err != nil {
		t.Skipf("skipped: a network namespace cannot be created: %v", err)
	}
	t.Cleanup(func() {
		_ = p.in.Close()
		_ = p.cmd.Wait()
		_ = out.Close()
	})
	return p
}

// ask executes a command in the process.
func (p *process) ask(format string, args ...any) string {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.reply.ReadString('\n')
	if err != nil {
		p.t.Fatalf("the process ended: %v", err)
	}
	return strings.TrimSpace(line)
}

// await asks until the answer is want.
func (p *process) await(limit time.Duration, want, format string, args ...any) time.Duration {
	p.t.Helper()
	began, got := time.Now(), ""
	for time.Since(began) < limit {
		if got = p.ask(format, args...); got == want {
			return time.Since(began)
		}
	}
	p.t.Fatalf("%s: %q after %v, want %q; %s", fmt.Sprintf(format, args...), got, limit, want, p.ask("state"))
	return 0
}

// system runs a program in the namespace of the process.
func (p *process) system(input, name string, args ...string) {
	p.t.Helper()
	cmd := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(p.cmd.Process.Pid), "-n", name}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		for _, missing := range []string{"not supported", "Unknown device type", "Operation not permitted"} {
			if strings.Contains(string(out), missing) {
				p.t.Skipf("skipped: the kernel lacks a feature: %s: %s", name, out)
			}
		}
		p.t.Fatalf("%s %v: %v: %s\non\n%s", name, args, err, out, input)
	}
}

// block replaces the packet filter of the process.
func (p *process) block(rules string) {
	p.t.Helper()
	p.system("flush ruleset\ntable inet test {\n"+rules+"\n}\n", "nft", "-f", "-")
}

const dropUDP = "chain i { type filter hook input priority 0; meta l4proto udp drop; }\n" +
	"chain o { type filter hook output priority 0; meta l4proto udp drop; }"

// newProcesses starts nodes 1 to n on one link, with a filter that is active before they start.
func newProcesses(t *testing.T, n, mtu int, filter string) (out []*process) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: network namespaces need root")
	}
	for _, tool := range []string{"ip", "nft", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %s is not on PATH", tool)
		}
	}
	link := newProcess(t, 0)
	link.system(fmt.Sprintf("link add br0 mtu %d type bridge\nlink set br0 up\n", mtu), "ip", "-batch", "-")
	for i := 1; i <= n; i++ {
		p := newProcess(t, i)
		link.system(fmt.Sprintf("link add veth%[1]d mtu %[3]d type veth peer name eth0 mtu %[3]d netns %[2]d\n"+
			"link set veth%[1]d master br0\nlink set veth%[1]d up\n", i, p.cmd.Process.Pid, mtu), "ip", "-batch", "-")
		p.system(fmt.Sprintf("link set lo up\naddr add 10.78.0.%d/24 dev eth0\nlink set eth0 up\n", i), "ip", "-batch", "-")
		p.block(filter)
		out = append(out, p)
	}
	for _, p := range out {
		if got := p.ask("start"); got != "ok" {
			t.Fatal(got)
		}
	}
	for _, p := range out {
		p.await(patience, fmt.Sprint(n), "alive")
	}
	return out
}

// spread writes a value on each node and waits until all others have it. It may take longer than
// the limit twice, because the machine may be busy.
func spread(t *testing.T, nodes []*process, limit time.Duration, name string, size int) {
	t.Helper()
	for i, p := range nodes {
		for try := 0; ; try++ {
			key, worst := fmt.Sprint(name, i, "-", try), time.Duration(0)
			if got := p.ask("put %s %d", key, size); got != "ok" {
				t.Fatal(got)
			}
			for _, o := range nodes {
				worst = max(worst, o.await(patience, fmt.Sprint(size), "get %s", key))
			}
			if worst <= limit {
				break
			}
			t.Logf("%d bytes of node %d are everywhere after %v", size, i+1, worst.Round(time.Millisecond))
			if try == 2 {
				t.Errorf("each time, it takes longer than %v", limit)
				break
			}
		}
	}
}

// TestBlockedNetworks runs real nodes in network namespaces that drop a part of the traffic.
func TestBlockedNetworks(t *testing.T) {
	t.Run("TCP only", func(t *testing.T) {
		t.Parallel()
		nodes := newProcesses(t, 3, 1500, dropUDP)
		for _, p := range nodes {
			p.await(patience, "true", "lost")
		}
		spread(t, nodes, 2*time.Second, "tcp", 100)
		for _, p := range nodes {
			p.block("")
		}
		for _, p := range nodes {
			p.await(patience, "false", "lost")
			p.await(10*time.Second, "3", "alive")
		}
		spread(t, nodes, 2*time.Second, "both", 100)
	})
	t.Run("UDP only", func(t *testing.T) {
		t.Parallel()
		nodes := newProcesses(t, 3, 1500, "") // a node joins over TCP
		for _, p := range nodes {
			p.block("chain i { type filter hook input priority 0; meta l4proto tcp drop; }")
		}
		spread(t, nodes, 2*time.Second, "udp", 100)
		for began := time.Now(); time.Since(began) < ackPatience+3*time.Second; {
			for _, p := range nodes {
				if alive, lost := p.ask("alive"), p.ask("lost"); alive != "3" || lost != "false" {
					t.Fatalf("%s members are alive, packets lost: %s", alive, lost)
				}
			}
		}
		for _, p := range nodes {
			p.block("")
		}
		spread(t, nodes, 30*time.Second, "large", 20000)
	})
	t.Run("one way", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{2, 3} {
			nodes := newProcesses(t, n, 1500, "")
			nodes[1].block("chain i { type filter hook input priority 0; meta l4proto udp drop; }")
			nodes[1].await(patience, fmt.Sprint(n-1), "lostto")
			nodes[0].await(patience, "1", "lostto")
			spread(t, nodes, 2*time.Second, "one", 100)
			for _, p := range nodes {
				p.await(10*time.Second, fmt.Sprint(n), "alive")
			}
		}
	})
	t.Run("MTU 1280", func(t *testing.T) {
		t.Parallel()
		// Fragments are dropped, as by many firewalls.
		nodes := newProcesses(t, 2, 1280,
			"chain i { type filter hook prerouting priority -450; ip frag-off & 0x3fff != 0 drop; }")
		for _, size := range []int{100, 700, 900, 1000, 1050, 1100, 1150, 1200, 1300, 1400, 5000, 60000} {
			spread(t, nodes, 2*time.Second, fmt.Sprint("mtu", size), size)
		}
	})
}

// TestMemberProcess is the program of a process; see [newProcess].
func TestMemberProcess(t *testing.T) {
	var i int
	if _, err := fmt.Sscan(os.Getenv(memberEnv), &i); err != nil {
		t.Skip("it runs only as a process of another test")
	}
	out := os.NewFile(3, "replies")
	var n running
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		answer := "ok"
		switch words[0] {
		case "start":
			n = run(t, Options{Self: simID(i), Name: fmt.Sprint("node-", i),
				Bind:  []netip.AddrPort{netip.MustParseAddrPort(memberAddr(i))},
				Seeds: func() []string { return []string{memberAddr(1), memberAddr(2)} }})
		case "put":
			var size int
			_, _ = fmt.Sscan(words[2], &size)
			if err := put(n, words[1], strings.Repeat("x", size)); err != nil {
				answer = err.Error()
			}
		case "get": // returns at the next change, so the test does not poll too often
			k, limit := engine.Key{Kind: "K", Mesh: "m", Name: words[1]}, time.After(50*time.Millisecond)
			w := n.Watch()
			for waits := body(n, k) == ""; waits; {
				select {
				case <-w.C():
					w.Take()
					waits = body(n, k) == ""
				case <-limit:
					waits = false
				}
			}
			w.Close()
			answer = fmt.Sprint(len(body(n, k)))
		case "alive":
			answer = fmt.Sprint(alive(n))
		case "lost":
			answer = fmt.Sprint(n.Stats().PacketsLost)
		case "lostto":
			answer = fmt.Sprint(n.Stats().PacketsLostTo)
		case "state":
			answer = strings.ReplaceAll(fmt.Sprintf("%+v %+v", n.Members(), n.Stats()), "\n", " ")
		}
		if words[0] != "get" {
			<-time.After(5 * time.Millisecond) // the test polls
		}
		_, _ = fmt.Fprintln(out, answer)
	}
	if n.Node != nil {
		n.stop()
	}
}
