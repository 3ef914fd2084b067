package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// podNet is the network namespace of a pod.
type podNet struct {
	t    *testing.T
	path string
}

// newPodNet creates a namespace with the address 10.98.0.2. The test has 10.98.0.1.
func newPodNet(t *testing.T) *podNet {
	t.Helper()
	sleeper := exec.CommandContext(t.Context(), "unshare", "-n", "sleep", "600")
	agenttest.Do(t, sleeper.Start())
	t.Cleanup(func() { _ = sleeper.Wait() }) // the context has ended
	p := &podNet{t: t, path: fmt.Sprintf("/proc/%d/ns/net", sleeper.Process.Pid)}
	own, err := os.Readlink("/proc/self/ns/net")
	agenttest.Do(t, err)
	agenttest.Eventually(t, "the namespace", func() bool {
		is, err := os.Readlink(p.path)
		return err == nil && is != own
	})
	for _, batch := range [][2]string{
		{"", "link set lo up\nlink add pod0 type veth peer name eth0 netns " + strconv.Itoa(sleeper.Process.Pid) +
			"\naddr add 10.98.0.1/24 dev pod0\nlink set pod0 up\n"},
		{p.path, "link set lo up\naddr add 10.98.0.2/24 dev eth0\nlink set eth0 up\nroute add default via 10.98.0.1\n"},
	} {
		args := []string{"ip", "-batch", "-"}
		if batch[0] != "" {
			args = append([]string{"nsenter", "--net=" + batch[0]}, args...)
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(batch[1])
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", batch[1], err, out)
		}
	}
	return p
}

// workload runs f on a thread in the namespace, as a user other than Envoy's.
func (p *podNet) workload(f func() error) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		ns, err := os.Open(p.path)
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			_, err = unix.SetfsuidRetUid(1234)
		}
		if err == nil {
			err = f()
		}
		ended <- err
	}()
	return <-ended
}

// resolve returns the address of a name by a query to a server that does not exist.
func resolve(name string) (string, error) {
	c, err := net.Dial("udp", "10.98.0.1:53")
	if err != nil {
		return "", err
	}
	conn := &mdns.Conn{Conn: c}
	defer conn.Close()
	query := new(mdns.Msg).SetQuestion(name, mdns.TypeA)
	if err := errors.Join(conn.SetDeadline(time.Now().Add(time.Second)), conn.WriteMsg(query)); err != nil {
		return "", err
	}
	answer, err := conn.ReadMsg()
	if err != nil {
		return "", err
	}
	for _, rr := range answer.Answer {
		if a, ok := rr.(*mdns.A); ok {
			return a.A.String(), nil
		}
	}
	return "", fmt.Errorf("%s: %s", name, mdns.RcodeToString[answer.Rcode])
}

// ask sends a text over a new connection, and checks the response.
func ask(to, text, want string) error {
	c, err := net.DialTimeout("tcp", to, agenttest.Patience)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(agenttest.Patience)); err != nil {
		return err
	}
	_, err = io.WriteString(c, text)
	got, readErr := io.ReadAll(c)
	if err = errors.Join(err, readErr); err == nil && !strings.HasPrefix(string(got), want) {
		err = fmt.Errorf("%s answers %q", to, got)
	}
	return err
}

// TestRedirectedPodOverItsSocket runs an Envoy in a network namespace that reaches the agent only
// through the directory of its pod. Its workload resolves names and calls another pod, also while
// the agent is killed and while an excluded port comes into force.
func TestRedirectedPodOverItsSocket(t *testing.T) {
	envoytest.Find(t)
	if !agenttest.OwnNetwork(t, "nsenter", "unshare", "setpriv", "mount") {
		return
	}
	w := newLogging(t)
	p := newPodNet(t)
	const outside = "10.98.0.1:9000"
	l, err := net.Listen("tcp", outside)
	agenttest.Do(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_, _ = c.Write([]byte("y"))
			_ = c.Close()
		}
	}()
	w.extra = []string{"xds.pods=pods", "xds.access=[]", "intercept.pods=true", "dns.listen=127.0.0.1:15053"}
	w.register("u-web", "shop", "web-0")
	w.register("u-api", "shop", "api-0")
	write := func(annotations string) {
		web := strings.ReplaceAll(w.podDataplane("u-web", "shop", "web-0", 8080), "127.0.0.1", "10.98.0.2")
		web = strings.Replace(web, "nearside.io/pod: u-web}", "nearside.io/pod: u-web, nearside.io/redirect: pod}\n"+
			"  annotations: {"+annotations+"}", 1)
		w.resource("web", "type: Mesh\nname: default\n---\n"+web+
			"    transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}\n---\n"+
			strings.NewReplacer("address: 127.0.0.1", "address: 10.98.0.1",
				"servicePort", "serviceAddress: 127.0.0.1, servicePort").Replace(w.podDataplane("u-api", "shop", "api-0", 8081)))
	}
	write("")
	w.holdSockets()
	w.start()
	envoytest.Start(t, w.inPod("u-api"), "", podBootstrap(w, "api-0.shop"))
	inside := w.inPod("u-web")
	text, err := os.ReadFile(inside)
	agenttest.Do(t, err, os.WriteFile(inside,
		[]byte(strings.Replace(string(text), "exec unshare", "exec nsenter --net="+p.path+" unshare", 1)), 0o755))
	web := envoytest.Start(t, inside, "", podBootstrap(w, "web-0.shop"))

	passed := func() string { // connections to servers outside the mesh
		code, stats := web.Admin("/stats?filter=outbound_passthrough.*ipv4.upstream_cx_total")
		if code != 200 || !strings.Contains(stats, ": ") {
			t.Fatalf("%d: %s", code, stats)
		}
		return strings.TrimSpace(stats[strings.LastIndex(stats, ": ")+2:])
	}
	visit := func() error { return ask(outside, "x", "y") }
	// The Envoy has its first config, so its pod is redirected.
	agenttest.Do(t, p.workload(visit))
	if n := passed(); n != "1" {
		t.Errorf("%s connections through the proxy; want 1", n)
	}
	address := func() (found string) {
		t.Helper()
		w.await("the name of the other pod", func() bool {
			return p.workload(func() (err error) {
				found, err = resolve("api-0_shop_svc_80.mesh.")
				return err
			}) == nil
		})
		return found
	}
	api := net.JoinHostPort(address(), "80")
	call := func() error { return ask(api, "GET / HTTP/1.0\r\nHost: api\r\n\r\n", "HTTP/1.0 200 OK") }
	w.await("a call to the other pod", func() bool { return p.workload(call) == nil })

	var total, failed atomic.Int64
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- p.workload(func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				for _, f := range []func() error{call, visit} {
					total.Add(1)
					if err := f(); err != nil {
						failed.Add(1)
						t.Error(err)
					}
				}
			}
		})
	}()
	more := func() {
		t.Helper()
		until := total.Load() + 100
		w.await("100 calls more", func() bool { return total.Load() >= until })
	}
	more()
	w.kill(syscall.SIGKILL)
	more()
	w.start()
	more()
	write("traffic.kuma.io/exclude-outbound-ports: '9000'")
	w.await("the exclusion is in force", func() bool {
		n := passed()
		more()
		return passed() == n
	})
	more()
	close(stop)
	agenttest.Do(t, <-ended)
	t.Logf("%d calls, %d failed", total.Load(), failed.Load())
	if later := net.JoinHostPort(address(), "80"); later != api {
		t.Errorf("the name has the address %s instead of %s", later, api)
	}
}
