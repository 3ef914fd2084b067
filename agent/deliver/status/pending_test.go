package status_test

import (
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestPendingLong checks that a missing acknowledgment becomes a problem after some seconds, and
// that checks that make the node unready come first.
func TestPendingLong(t *testing.T) {
	s := agenttest.Memory(t)
	agenttest.ByAPI(t, s, "{type: Mesh, name: default}\n---\n"+agenttest.DataplaneText("default", "web", "10.0.0.1"))
	for age, want := range map[time.Duration]int{time.Second: 1, time.Minute: 2} {
		tracker := &status.Tracker{Registry: kinds.Registry(), Store: s, Last: func() *status.Result { return nil },
			Proxies: func() []api.ProxyStatus {
				return []api.ProxyStatus{{Mesh: "default", Name: "web", NodeID: "default.web", Flavor: node.FlavorEnvoy,
					State: api.StateServing, Streams: 1, ConnectedAt: time.Now().Add(-age)}}
			}, Parts: status.Parts{Ready: func() []api.Check {
				return []api.Check{{Name: "config", Reason: "no config was made yet"}}
			}}}
		got := tracker.Status(t.Context(), status.View{Whole: true}).Problems
		if len(got) != want || !got[0].Unready || got[0].Severity != api.SeverityError {
			t.Errorf("after %s: %+v", age, got)
		}
		if p := got[len(got)-1]; want == 2 && (p.Check != api.ClassPending || p.Resource != "Dataplane/default/web" ||
			p.Command != "nearside inspect dataplane web -m default --type=status") {
			t.Errorf("pending: %+v", p)
		}
	}
}
