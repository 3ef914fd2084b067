package agent_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// redirectedMark is the socket mark of the workload's connections. The rules redirect only
// connections with this mark, not those of Envoy.
const redirectedMark = 0x6e73

// outside is a server outside the mesh that sends a line on every connection and closes it.
func outside(t *testing.T, at string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 1))
				_, _ = io.WriteString(c, "reached\n")
				_, _ = io.Copy(io.Discard, c) // until the client has received the line
			}()
		}
	}()
}

// visit opens a connection of the workload and reports whether a server outside the mesh responds.
func visit(t *testing.T, to, name string, overTLS bool) bool {
	t.Helper()
	dialer := net.Dialer{Timeout: agenttest.Patience, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, redirectedMark)
		}), err)
	}}
	c, err := dialer.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(agenttest.Patience)); err != nil {
		t.Fatal(err)
	}
	if overTLS {
		var odd tls.RecordHeaderError // the server responds with a plain-text line
		err := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		return errors.As(err, &odd)
	}
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return false
	}
	b := make([]byte, 7)
	_, err = io.ReadFull(c, b)
	return err == nil && string(b) == "reached"
}

// redirected sets up the network namespace of the test, with additional ip(8) commands, and
// configures the agent's Envoys to flush their logs immediately. It returns a directory.
func redirected(t *testing.T, real, network string) string {
	t.Helper()
	dir := agenttest.ShortDir(t)
	// By default Envoy flushes its log every 10 s.
	agenttest.Write(t, dir+"/envoy", "#!/bin/sh\nexec '"+real+"' \"$@\" --file-flush-interval-msec 1\n")
	agenttest.Do(t, os.Chmod(dir+"/envoy", 0o755))
	t.Setenv("ENVOY_BIN", dir+"/envoy")
	setUp := func(input, name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		if err != nil && strings.Contains(string(out), "not supported") {
			t.Skipf("skipped: the kernel lacks something that the test needs: %s: %s", name, out)
		}
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	setUp("link set lo up\n"+network, "ip", "-batch", "-")
	setUp(fmt.Sprintf("table ip redirection {\n\tchain output {\n\t\ttype nat hook output priority -100; "+
		"policy accept;\n\t\tmeta mark %#x meta l4proto tcp redirect to :15001\n\t}\n}\n", redirectedMark), "nft", "-f", "-")
	return dir
}

// TestRefusedConnections redirects a workload to a real Envoy, which refuses its connections. The
// test finds them in the access log and applies the proposal. After that the connections must
// succeed, and the proposal must be empty.
func TestRefusedConnections(t *testing.T) {
	real := envoytest.Find(t)
	if !agenttest.OwnNetwork(t) {
		return
	}
	dir := redirected(t, real, "addr add 203.0.113.7/32 dev lo\n")
	const overTLS, noName, plain, other = "203.0.113.7:443", "203.0.113.7:444", "203.0.113.7:9000", "203.0.113.7:9001"
	for _, at := range []string{overTLS, noName, plain, other, "127.0.0.1:443"} {
		outside(t, at)
	}

	a := agenttest.RunAgent(t)
	version := "" // of the listeners
	// acknowledged waits until Envoy has new listeners.
	acknowledged := func() {
		t.Helper()
		agenttest.Eventually(t, "Envoy has acknowledged other listeners", func() bool {
			for _, p := range a.Proxies() {
				for _, s := range p.Types {
					if p.InSync && s.TypeURL == draft.TypeListener && s.AckedVersion != version {
						version = s.AckedVersion
						return true
					}
				}
			}
			return false
		})
	}
	api := client.New(a.Addrs().API, agenttest.Patience)
	log := dir + "/access.log"
	agenttest.Apply(t, a, `
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 127.0.0.2, inbound: [{port: 8080, tags: {kuma.io/service: web}}], transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, ipFamilyMode: IPv4}}}
---
{type: MeshAccessLog, mesh: default, name: all, spec: {to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: `+log+`}}]}}]}}
---
{type: MeshPassthrough, mesh: default, name: some, spec: {default: {passthroughMode: Matched, appendMatch: [{type: IP, value: 203.0.113.7, port: 9001, protocol: tcp},
  {type: Domain, value: other.example, port: 443, protocol: tls}, {type: Domain, value: other.example, port: 9000, protocol: tls}]}}}
`)
	startEnvoy(t, a, "web")
	acknowledged()

	// visits opens one connection of each kind and returns which ones succeeded.
	visits := func() string {
		t.Helper()
		return fmt.Sprintf("TLS %t, without a name %t, a line %t, permitted %t", visit(t, overTLS, "localhost", true),
			visit(t, noName, "", true), visit(t, plain, "", false), visit(t, other, "", false))
	}
	// propose waits until the given number of connections is logged in the current formats, and
	// requests a proposal.
	propose := func(refused int) (*traffic.Refusals, *traffic.PassthroughProposal) {
		t.Helper()
		config, err := api.Config(t.Context(), "default", "web", render.ConfigOptions{})
		agenttest.Do(t, err)
		formats, err := traffic.RefusalLogs(config.XDS)
		agenttest.Do(t, err)
		var c *traffic.Refusals
		agenttest.Eventually(t, fmt.Sprintf("%d refused connections in the log", refused), func() bool {
			f, err := os.Open(log)
			agenttest.Do(t, err)
			defer f.Close()
			c = &traffic.Refusals{}
			agenttest.Do(t, c.Read(f, formats))
			return c.Refused >= refused
		})
		p, err := traffic.ProposePassthrough(c, traffic.PassthroughOptions{Mesh: "default", Dataplane: "web", Limit: 10},
			func(q explain.ConnectionQuestion) (*explain.Flow, error) {
				return api.ExplainConnection(t.Context(), q)
			})
		agenttest.Do(t, err)
		return c, p
	}
	proposed := func(p *traffic.PassthroughProposal, matches ...string) {
		t.Helper()
		for _, m := range matches {
			if !strings.Contains(p.Policy, m) {
				t.Errorf("the proposal lacks %s:\n%s", m, p.Policy)
			}
		}
		if len(p.Matches) != len(matches) {
			t.Errorf("%d matches, want %d:\n%s", len(p.Matches), len(matches), p.Policy)
		}
	}

	if got, want := visits(), "TLS false, without a name false, a line false, permitted true"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	c, p := propose(3)
	if c.Refused != 3 { // each is logged once
		t.Errorf("%d refused connections are logged, want 3", c.Refused)
	}
	proposed(p, "{type: Domain, value: localhost, port: 443, protocol: tls}",
		"{type: IP, value: 203.0.113.7, port: 9000, protocol: tcp}",
		// Connections to a port that no match names are not inspected, because servers on that port
		// may speak first.
		"{type: IP, value: 203.0.113.7, port: 444, protocol: tls}",
		"{type: IP, value: 203.0.113.7, port: 444, protocol: tcp}")

	// counted returns Envoy's counter of refused connections.
	counted := func() uint64 {
		t.Helper()
		s, err := api.Status(t.Context())
		agenttest.Do(t, err)
		if len(s.RefusedConnections) == 0 {
			return 0
		}
		return s.RefusedConnections[0].Count
	}
	agenttest.Eventually(t, "status counts 3 refused connections", func() bool { return counted() == 3 })

	agenttest.Apply(t, a, p.Policy)
	acknowledged()
	all := "TLS true, without a name true, a line true, permitted true"
	agenttest.Eventually(t, "what was refused is allowed", func() bool { return visits() == all })
	if _, second := propose(3); len(second.Matches) > 0 || len(second.Allowed) != 3 {
		t.Errorf("still proposed: %+v", second)
	}

	// A closed passthrough matches every connection, and its filter chain has the log.
	agenttest.Remove(t, a, resource.Key{Kind: "MeshPassthrough", Mesh: "default", Name: "allow-" + p.Matches[0].Value})
	agenttest.Remove(t, a, resource.Key{Kind: "MeshPassthrough", Mesh: "default", Name: "some"})
	agenttest.Apply(t, a, "{type: Mesh, name: default, networking: {outbound: {passthrough: false}}}")
	none := "TLS false, without a name false, a line false, permitted false"
	agenttest.Eventually(t, "the passthrough is closed", func() bool { return visits() == none })
	agenttest.Eventually(t, "what a closed passthrough refuses is counted", func() bool { return counted() >= 7 })
	// The cluster is closed before the listener has the access log for that.
	agenttest.Eventually(t, "what a closed passthrough refuses is logged", func() bool {
		visits()
		text, err := os.ReadFile(log)
		return err == nil && strings.Count(string(text), "refused: closed") >= 4
	})
	_, p = propose(4)
	proposed(p, "port: 443, protocol: tls}", "port: 443, protocol: tcp}", "port: 444, protocol: tls}",
		"port: 444, protocol: tcp}", "port: 9000, protocol: tls}", "port: 9000, protocol: tcp}",
		"port: 9001, protocol: tls}", "port: 9001, protocol: tcp}")
}
