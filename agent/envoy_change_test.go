package agent_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// pair holds two real Envoys of one agent. Requests pass the outbound of web and the inbound of
// backend.
type pair struct {
	a                  *agent.Agent
	web, backend       *envoytest.Process
	in, workload, port int
}

func startPair(t *testing.T, mtls bool, args ...string) *pair {
	t.Helper()
	envoytest.Find(t)
	p := &pair{a: agenttest.RunAgent(t), in: freePort(t), workload: serveText(t, nil, "ok"), port: freePort(t)}
	m := "{type: Mesh, name: default, skipCreatingInitialPolicies: ['*']}"
	if mtls {
		m = "{type: Mesh, name: default, skipCreatingInitialPolicies: ['*'], mtls: {enabledBackend: ca, " +
			"backends: [{name: ca, type: builtin}]}}"
	}
	agenttest.Apply(t, p.a, m+fmt.Sprintf("\n---\n{type: Dataplane, mesh: default, name: web, "+
		"networking: {address: 127.0.0.2, inbound: [{port: %d, tags: {kuma.io/service: web}}], outbound: [{port: %d, "+
		"tags: {kuma.io/service: backend}}]}}\n", freePort(t), p.port))
	p.permit(t, "Allow")
	p.speak(t, "http", "")
	p.web, p.backend = startEnvoy(t, p.a, "web", args...), startEnvoy(t, p.a, "backend", args...)
	return p
}

// speak sets the protocol of the workload and adds a tag to its inbound.
func (p *pair) speak(t *testing.T, protocol, version string) {
	t.Helper()
	agenttest.Apply(t, p.a, fmt.Sprintf("{type: Dataplane, mesh: default, name: backend, networking: {address: "+
		"127.0.0.3, inbound: [{port: %d, servicePort: %d, serviceAddress: 127.0.0.1, tags: {kuma.io/service: backend, "+
		"kuma.io/protocol: %s, version: '%s'}}]}}", p.in, p.workload, protocol, version+"v"))
}

// permit allows or denies the clients of the mesh.
func (p *pair) permit(t *testing.T, action string) {
	t.Helper()
	agenttest.Apply(t, p.a, "{type: MeshTrafficPermission, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, "+
		"from: [{targetRef: {kind: Mesh}, default: {action: "+action+"}}]}}")
}

// applied waits until both Envoys have ACKed or NACKed the last change of a resource.
func (p *pair) applied(t *testing.T, kind, name string) *api.Applied {
	t.Helper()
	var x *api.Applied
	agenttest.Eventually(t, kind+" "+name+" is not pending", func() bool {
		var err error
		x, err = client.New(p.a.Addrs().API, agenttest.Patience).Wait(t.Context(),
			api.Wait{Type: kind, Mesh: "default", Name: name, For: api.ForApplied, Timeout: agenttest.LongestWait})
		agenttest.Do(t, err)
		return x.State != api.StatePending
	})
	if x.State != api.StateApplied || x.Acknowledged != 2 {
		t.Fatalf("%s %s: %+v", kind, name, x)
	}
	return x
}

// TestProtocolChangesUnderLoad checks that no request fails when a service's protocol changes from
// http to tcp and back. Requests pass two real Envoys on persistent connections, and old filter
// chains drain for 600 s.
func TestProtocolChangesUnderLoad(t *testing.T) {
	for name, mtls := range map[string]bool{"plain": false, "mTLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the agent waits some seconds for other nodes
			p := startPair(t, mtls)
			l := startFlow(t, p.port, 3)
			l.more(t, 100)
			for _, protocol := range []string{"tcp", "http"} {
				p.speak(t, protocol, "")
				p.applied(t, "Dataplane", "backend")
				l.more(t, 300)
			}
			l.stop(t)
		})
	}
}

// TestPermissionHoldsOnOpenConnections checks that a granted or revoked permission applies to the
// requests on every open connection once the Envoy has acknowledged it. Requests that start before
// may have either outcome, and so may the next one of each client: the thread of the connection
// takes the change before it reads again, which it may have begun.
func TestPermissionHoldsOnOpenConnections(t *testing.T) {
	p := startPair(t, true)
	l := startFlow(t, p.port, 5)
	l.more(t, 100)
	for range 2 {
		for _, x := range []struct {
			action string
			status int64
		}{{"Deny", http.StatusForbidden}, {"Allow", http.StatusOK}} {
			l.expect(0)
			p.permit(t, x.action)
			if got := p.applied(t, "MeshTrafficPermission", "all"); got.OldUntil.IsZero() {
				t.Error("nobody is told that old connections drain")
			}
			l.expect(0) // see above
			l.expect(x.status)
			l.more(t, 100)
		}
	}
	if l.stop(t); l.connections.Load() != 5 {
		t.Errorf("%d connections of 5 clients: some were closed", l.connections.Load())
	}
}

// TestTagChangeDrainsNothing checks that a tag change of an inbound affects neither its listener
// nor its connections.
func TestTagChangeDrainsNothing(t *testing.T) {
	p := startPair(t, true)
	l := startFlow(t, p.port, 5)
	l.more(t, 100)
	for i := range 3 {
		p.speak(t, "http", fmt.Sprint(i))
		p.applied(t, "Dataplane", "backend")
		l.more(t, 100)
	}
	if l.stop(t); l.connections.Load() != 5 {
		t.Errorf("%d connections of 5 clients: some were closed", l.connections.Load())
	}
}
