package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// listenerType is the resource type that the proxies of these tests subscribe to.
const listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"

// waitProxy is a proxy that responds when the test requests it.
type waitProxy struct {
	t   *testing.T
	str discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	has map[string]string
}

// connect opens a stream as a proxy that already has resources. change changes its first request.
func (d *daemon) connect(name string, has map[string]string,
	change ...func(*discoveryv3.DeltaDiscoveryRequest)) *waitProxy {
	d.t.Helper()
	conn, err := grpc.NewClient("unix://"+d.xds(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	d.t.Cleanup(func() { cancel(); conn.Close() })
	p := &waitProxy{t: d.t, has: map[string]string{}}
	if p.str, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx); err != nil {
		d.t.Fatal(err)
	}
	first := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "default." + name}, TypeUrl: listenerType,
		InitialResourceVersions: has}
	for _, f := range change {
		f(first)
	}
	p.send(first)
	return p
}

func (p *waitProxy) send(req *discoveryv3.DeltaDiscoveryRequest) {
	p.t.Helper()
	if err := p.str.Send(req); err != nil {
		p.t.Fatal(err)
	}
}

// next receives one response. answer acknowledges it, or rejects it if reason is set.
func (p *waitProxy) next() (answer func(reason string)) {
	p.t.Helper()
	resp, err := p.str.Recv()
	if err != nil {
		p.t.Fatal(err)
	}
	return func(reason string) {
		p.t.Helper()
		req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: listenerType, ResponseNonce: resp.Nonce}
		if reason != "" {
			req.ErrorDetail = &rpcstatus.Status{Code: 13, Message: reason}
		}
		p.send(req)
		for _, r := range resp.Resources {
			p.has[r.Name] = r.Version
		}
	}
}

const slowDoc = "{type: MeshTimeout, mesh: default, name: slow, spec: {targetRef: {kind: Mesh}, " +
	"from: [{targetRef: {kind: Mesh}, default: {http: {requestHeadersTimeout: %ds}}}]}}\n"

// late runs a wait until its timeout, and again if the agent has not answered by then at all.
func (d *daemon) late(args ...string) (stdout, stderr string) {
	d.t.Helper()
	agenttest.Eventually(d.t, strings.Join(args, " "), func() bool {
		var code int
		code, stdout, stderr = d.nearside("", args...)
		if code != command.ExitTimeout {
			d.t.Fatalf("%v: exit code %d: %s%s", args, code, stdout, stderr)
		}
		return !strings.Contains(stderr, "has said nothing for")
	})
	return stdout, stderr
}

// TestWait waits for a policy with each possible result.
func TestWait(t *testing.T) {
	d := start(t, quickTemp(t))
	d.must(webDoc, "apply", "-f", "-")
	agenttest.Contains(t, d.must("", "wait", "dp/web"),
		"dataplane/web in mesh default applied: no connected proxy is affected")
	p := d.connect("web", nil)
	p.next()("")
	agenttest.Contains(t, d.must("", "wait", "dp/web"),
		"dataplane/web in mesh default applied: 1 proxy acknowledged revision 2")

	d.must(fmt.Sprintf(slowDoc, 7), "apply", "-f", "-")
	answer := p.next()
	out, errs := d.late("wait", "mt/slow", "--for=applied", "--timeout", "200ms")
	if out != "" {
		t.Errorf("while the proxy does not answer: %q", out)
	}
	agenttest.Contains(t, errs, "error: after 200ms meshtimeout/slow in mesh default is not applied; 1 proxy late",
		"default/web: it has not acknowledged the response sent at", "(listener)")
	agenttest.Contains(t, d.must("", "get", "mt", "-o", "wide"), "STATE", "pending on 1 proxy")
	answer("")
	agenttest.Contains(t, d.must("", "wait", "meshtimeout", "slow"),
		"meshtimeout/slow in mesh default applied: 1 proxy acknowledged revision 3")
	agenttest.Contains(t, d.must("", "get", "mt", "slow", "-o", "wide"), "applied on 1 proxy")

	d.must(fmt.Sprintf(slowDoc, 8), "apply", "-f", "-")
	p.next()("Error adding/updating listener(s) inbound:192.0.2.1:8080: route: bad timeout\n")
	var code int
	agenttest.Eventually(t, "the agent has decided what the proxy gets instead", func() bool { // after the rejection
		code, out, errs = d.nearside("", "wait", "mt/slow", "-o", "json")
		return code != command.ExitNo || strings.Contains(errs, "; Envoy gets the version with revision 3")
	})
	var doc api.Applied
	if err := json.Unmarshal([]byte(out), &doc); code != command.ExitNo || err != nil ||
		doc.State != api.StateRejected || doc.RejectedTotal != 1 {
		t.Errorf("rejected: exit code %d, %v, %s", code, err, out)
	}
	agenttest.Contains(t, errs, "error: meshtimeout/slow in mesh default is rejected",
		"default/web: Listener inbound:192.0.2.1:8080: Error adding", "route: bad timeout", "    meshtimeout/slow "+
			"spec.from[0].default.http.requestHeadersTimeout (changed after the last accepted version): filterChains[",
		"; Envoy gets the version with revision 3 of MeshTimeout/default/slow")
	p.next()("")
	agenttest.Contains(t, d.must("", "get", "mt", "-o", "wide"),
		"rejected by default/web: inbound:192.0.2.1:8080: Error adding")
	agenttest.Contains(t, d.must("", "inspect", "dataplane", "web", "--type=status"),
		"held: inbound:192.0.2.1:8080: Error adding",
		"because of meshtimeout/slow spec.from[0].default.http.requestHeadersTimeout")
	agenttest.Contains(t, d.must("", "status"),
		"FAIL rejected: MeshTimeout/default/slow: rejected by default.web: Listener inbound:192.0.2.1:8080",
		"see spec.from[0].default.http.requestHeadersTimeout")

	_, errs = d.late("wait", "mt/slow", "--for=gone", "--timeout", "100ms")
	agenttest.Contains(t, errs, "is not gone: it still exists, at revision 4 from api")
	d.must("", "delete", "mt", "slow")
	p.next()("")
	agenttest.Contains(t, d.must("", "wait", "mt/slow", "--for=gone"), "meshtimeout/slow in mesh default gone")

	d.must(strings.Replace(fmt.Sprintf(slowDoc, 9), "name: slow", "name: shade, labels: {kuma.io/effect: shadow}", 1),
		"apply", "-f", "-")
	if code, _, errs = d.nearside("", "wait", "mt/shade"); code != command.ExitNo {
		t.Errorf("a shadow policy: exit code %d", code)
	}
	agenttest.Contains(t, errs,
		"error: meshtimeout/shade in mesh default does not act: it is labelled kuma.io/effect: shadow")
	for want, args := range map[string][]string{
		`--scope "all" is invalid`:      {"wait", "mt/x", "--scope", "all"},
		`--for "ever" is invalid`:       {"wait", "mt/x", "--for", "ever"},
		`--timeout -1s is invalid`:      {"wait", "mt/x", "--timeout", "-1s"},
		`the NAME of the mt is missing`: {"wait", "mt"},
		`there is no TYPE "nothing"`:    {"wait", "nothing/x"},
	} {
		if code, _, errs := d.nearside("", args...); code != command.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d: %s", args, code, errs)
		}
	}
	if code, _, errs := d.nearside("", "wait", "mt/x", "--scope", "mesh"); code != command.ExitFailed ||
		!strings.Contains(errs, "this agent is not in a pool") {
		t.Errorf("the mesh of an agent without a pool: exit code %d: %s", code, errs)
	}
	if code, _, errs := d.nearside("", "wait", "mt/missing"); code != command.ExitFailed ||
		!strings.Contains(errs, "MeshTimeout/default/missing does not exist") {
		t.Errorf("what does not exist: exit code %d: %s", code, errs)
	}
}

// lockedBuffer collects a command's output while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestWaitOverRestart restarts the agent during a wait for a proxy that has not responded. The wait
// must continue until the proxy has reconnected and applied the change.
func TestWaitOverRestart(t *testing.T) {
	dir := quickTemp(t)
	d := start(t, dir)
	for _, doc := range []string{webDoc, fmt.Sprintf(slowDoc, 7)} {
		if code, _, errs := d.nearside(doc, "apply", "-f", "-"); code != command.ExitOK {
			t.Fatal(errs)
		}
	}
	p := d.connect("web", nil)
	p.next()
	var errs lockedBuffer
	var out bytes.Buffer
	ended := make(chan int, 1)
	root := cli.Root(&command.Env{Stdout: &out, Stderr: &errs, Terminal: &errs})
	root.SetArgs([]string{"wait", "mt/slow", "--timeout", patience.String(), "--socket", d.socket()})
	go func() { ended <- command.ExitCode(root.ExecuteContext(t.Context())) }()
	agenttest.Eventually(t, "the command says whom it waits for", func() bool {
		return strings.Contains(errs.String(),
			"waiting for meshtimeout/slow: 0 of 1 proxy applied it, waiting for default/web")
	})
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Fatalf("the agent ended with %d", code)
	}
	agenttest.Eventually(t, "the command notices", func() bool { return strings.Contains(errs.String(), "trying again") })
	d = start(t, dir)
	p = d.connect("web", nil)
	p.next()("")
	select {
	case code := <-ended:
		if code != command.ExitOK || !strings.Contains(out.String(), "applied: 1 proxy acknowledged") {
			t.Errorf("exit code %d: %s%s", code, out.String(), errs.String())
		}
	case <-time.After(patience):
		t.Fatalf("the wait does not end: %s", errs.String())
	}
}

// TestWaitWithoutAgent checks that a wait reports a missing agent immediately, and fails with that
// error at the end.
func TestWaitWithoutAgent(t *testing.T) {
	var out, errs bytes.Buffer
	code := Main([]string{"wait", "mt/slow", "--timeout", "300ms", "--socket", "/nowhere/s"}, strings.NewReader(""),
		&out, &errs, nil)
	if code != command.ExitUnreachable {
		t.Errorf("exit code %d", code)
	}
	agenttest.Contains(t, errs.String(), "no agent answers at /nowhere/s", "trying again", "hint: start the agent")
}

// TestRetryIsShown checks that a resource rejected for a temporary reason is sent again, and that
// status reports it.
func TestRetryIsShown(t *testing.T) {
	d := start(t, quickTemp(t))
	if code, _, errs := d.nearside(webDoc, "apply", "-f", "-"); code != command.ExitOK {
		t.Fatal(errs)
	}
	p := d.connect("web", nil)
	p.next()("")
	if code, _, errs := d.nearside(fmt.Sprintf(slowDoc, 7), "apply", "-f", "-"); code != command.ExitOK {
		t.Fatal(errs)
	}
	p.next()("Error adding/updating listener(s) inbound:192.0.2.1:8080: cannot bind '192.0.2.1:8080': Address " +
		"already in use\n")
	code, out, errs := d.nearside("", "wait", "mt/slow", "-o", "json")
	var doc api.Applied
	if err := json.Unmarshal([]byte(out), &doc); code != command.ExitNo || err != nil || len(doc.Rejected) != 1 ||
		doc.Rejected[0].Retry.IsZero() {
		t.Errorf("exit code %d, %v, %s", code, err, out)
	}
	agenttest.Contains(t, errs, "Address already in use", "; it is tried again in ")
	for _, args := range [][]string{
		{"status"}, {"get", "mt", "-o", "wide"}, {"inspect", "dataplane", "web", "--type=status"},
	} {
		_, out, _ := d.nearside("", args...)
		agenttest.Contains(t, out, "tried again ")
	}
	if _, out, _ = d.nearside("", "inspect", "dataplane", "web", "--type=status", "-o", "json"); !strings.Contains(out,
		`"retry": "`) {
		t.Errorf("no time in the status: %s", out)
	}
}
