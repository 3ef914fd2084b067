package agent_test

import (
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestNackOvertakesAck checks a client that acknowledges the resources of a policy, restarts, and
// rejects the same bytes. The policy must then count as not applied despite the earlier
// acknowledgement. A policy that does not shape the rejected resource must count as applied.
func TestNackOvertakesAck(t *testing.T) {
	for name, reason := range map[string]string{
		"of the config": "it is no good",
		"of the host":   "cannot bind '127.0.0.1:80': Address already in use",
	} {
		t.Run(name, func(t *testing.T) { nackOvertakes(t, reason) })
	}
}

func nackOvertakes(t *testing.T, reason string) {
	r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
	agenttest.Apply(t, r.Agent, "type: Mesh\nname: default\n---\n"+agenttest.DataplaneText("default", "web", "127.0.0.1")+
		"---\ntype: MeshTimeout\nmesh: default\nname: slow\nspec:\n  targetRef: {kind: Mesh}\n  from:\n"+
		"  - targetRef: {kind: Mesh}\n    default: {connectionTimeout: 7s}\n")
	wait := func() string {
		t.Helper()
		a, err := r.Api().Wait(t.Context(), api.Wait{Type: "MeshTimeout", Mesh: "default", Name: "slow", Timeout: "20s"})
		agenttest.Do(t, err)
		return a.State
	}
	first := r.Ask(&core.Node{Id: "default.web"}, nil)
	agenttest.Next(t, first, map[string]string{})
	if got := wait(); got != api.StateApplied {
		t.Fatalf("acknowledged, and %s", got)
	}
	agenttest.Do(t, first.CloseSend())
	second := r.Ask(&core.Node{Id: "default.web"}, nil)
	resp, err := second.Recv()
	agenttest.Do(t, err)
	name := ""
	for _, x := range resp.Resources {
		if strings.HasPrefix(x.Name, "localhost:") {
			name = x.Name
		}
	}
	agenttest.Do(t, second.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce,
		ErrorDetail: &rpcstatus.Status{Code: 13, Message: "Error adding/updating cluster(s) " + name + ": " + reason}}))
	for begun := time.Now(); ; {
		if got := wait(); got == api.StateRejected {
			break
		} else if time.Since(begun) > agenttest.Patience {
			t.Fatalf("rejected, and %s", got)
		}
	}
	// Faults of the host are never attributed to a policy.
	s, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	want := "MeshTimeout/default/slow"
	if strings.Contains(reason, "bind") {
		want = "Dataplane/default/web"
	}
	found := false
	for _, p := range s.Problems {
		if p.Severity != api.SeverityError {
			continue
		}
		if found = true; p.Resource != want ||
			strings.Contains(p.Reason, "on the host of the Envoy, not in a policy") != (want == "Dataplane/default/web") {
			t.Errorf("%s: %s; want it of %s", p.Resource, p.Reason, want)
		}
	}
	if !found {
		t.Errorf("no problem is told: %+v", s.Problems)
	}
}

// TestNeverAnsweredType checks that a client that accepted clusters and endpoints, but never
// subscribed to listeners, does not count as having applied a policy.
func TestNeverAnsweredType(t *testing.T) {
	r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
	agenttest.Apply(t, r.Agent, agenttest.WebFile("web")+
		"---\ntype: MeshTimeout\nmesh: default\nname: slow\nspec:\n  targetRef: {kind: Mesh}\n  from:\n"+
		"  - targetRef: {kind: Mesh}\n    default: {connectionTimeout: 7s}\n")
	s := r.Ask(&core.Node{Id: "default.web", UserAgentName: "envoy"}, nil)
	want := func(when, state, timeout string) {
		t.Helper()
		waited, err := r.Api().Wait(t.Context(),
			api.Wait{Type: "MeshTimeout", Mesh: "default", Name: "slow", Timeout: timeout})
		agenttest.Do(t, err)
		list, err := r.Api().Applied(t.Context(), "meshtimeouts", "default", "slow")
		agenttest.Do(t, err)
		if waited.State != state || len(list) != 1 || list[0].State != state {
			t.Fatalf("%s: wait says %s, get says %+v; want %s", when, waited.State, list, state)
		}
	}
	next := func(url string) *discoveryv3.DeltaDiscoveryResponse {
		t.Helper()
		resp, err := s.Recv()
		agenttest.Do(t, err)
		if resp.TypeUrl != url {
			t.Fatalf("got %s, want %s", resp.TypeUrl, url)
		}
		return resp
	}
	ack := func(resp *discoveryv3.DeltaDiscoveryResponse) {
		t.Helper()
		agenttest.Do(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce}))
	}
	ask := func(url, name string) {
		t.Helper()
		agenttest.Do(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: []string{name}}))
	}
	ack(next(draft.TypeCluster))
	ask(draft.TypeEndpoint, "web")
	ack(next(draft.TypeEndpoint))
	want("listeners are not asked for", api.StatePending, "300ms")
	ask(draft.TypeListener, "*")
	listeners := next(draft.TypeListener)
	want("listeners are not answered", api.StatePending, "300ms")
	ack(listeners)
	want("all is answered", api.StateApplied, "20s")
}
