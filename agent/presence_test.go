package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestEndpointState kills the Envoy of a Dataplane. The answers of the agent name the state and its
// reason, and no list of resources has the record.
func TestEndpointState(t *testing.T) {
	p := startPair(t, false)
	c := client.New(p.a.Addrs().API, agenttest.Patience)
	state := func() *api.EndpointState {
		x, err := c.Proxy(t.Context(), "default", "backend")
		agenttest.Do(t, err)
		return x.Endpoints
	}
	agenttest.InSync(t, p.a, "default.backend") // the agent knows its inbound
	agenttest.Eventually(t, "there is no state with an Envoy", func() bool { return state() == nil })
	p.backend.Stop()
	agenttest.Eventually(t, "the state is known", func() bool { return state() != nil })
	if s := state(); s.State != resource.EndpointEnded || s.Reason != "its Envoy has ended" || len(s.Inbounds) > 0 ||
		s.Since.IsZero() {
		t.Errorf("%+v", s)
	}
	const says = "(ended): its Envoy has ended"
	x, err := c.Proxy(t.Context(), "default", "backend")
	agenttest.Do(t, err)
	if !strings.Contains(x.Reason, says) {
		t.Errorf("the proxy: %s", x.Reason)
	}
	status, err := c.Status(t.Context())
	agenttest.Do(t, err)
	if !slices.ContainsFunc(status.Problems, func(x api.Problem) bool {
		return x.Resource == "Dataplane/default/backend" && strings.Contains(x.Reason, says)
	}) {
		t.Errorf("status: %+v", status.Problems)
	}
	if n := status.Store.Resources[resource.KindEndpointState]; n > 0 {
		t.Errorf("status counts %d", n)
	}
	agenttest.Eventually(t, "the client has no endpoint", func() bool {
		flow, err := c.ExplainRequest(t.Context(), explain.RequestQuestion{Target: explain.Target{Mesh: "default",
			From: "web", To: fmt.Sprint("127.0.0.1:", p.port)}})
		agenttest.Do(t, err)
		return flow.Verdict != explain.VerdictAllowed &&
			strings.Contains(flow.Reason, "endpoints without traffic: backend is ended (its Envoy has ended)")
	})
	const doc = "{type: EndpointState, mesh: default, name: backend, spec: {state: ended}}"
	_, err = c.Apply(t.Context(), []byte(doc), false)
	if err == nil || !strings.Contains(err.Error(), "agents write it") {
		t.Errorf("apply: %v", err)
	}
	if _, err := c.Get(t.Context(), "endpointstates", "default", "backend"); err == nil {
		t.Error("a user can read the record")
	}
}
