package resources

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// TestStateColumn has every state of a policy in a table.
func TestStateColumn(t *testing.T) {
	for want, s := range map[string]client.Applied{
		"applied on 2 proxies": {State: client.StateApplied, Proxies: 2},
		"no proxy here":        {State: client.StateApplied, Selected: 3},
		"pending on 1 proxy":   {State: client.StatePending, LateTotal: 1},
		"selects nothing":      {State: client.StateUnselected},
		"shadow":               {State: client.StateShadow},
		"inert":                {State: client.StateInert},
		"replaced":             {State: client.StateReplaced},
		"rejected by default/web and 1 more: l: a b": {State: client.StateRejected, RejectedTotal: 2,
			Rejected: []httpapi.RejectedResource{{Mesh: "default", Name: "web", Resource: "l", Reason: "a\n b"}}},
	} {
		if got := stateOf(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
