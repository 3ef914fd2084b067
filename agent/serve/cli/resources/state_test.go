package resources

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// TestStateColumn has every state of a policy in a table.
func TestStateColumn(t *testing.T) {
	for want, s := range map[string]api.Applied{
		"applied on 2 proxies": {State: api.StateApplied, Proxies: 2},
		"no proxy here":        {State: api.StateApplied, Selected: 3},
		"pending on 1 proxy":   {State: api.StatePending, LateTotal: 1},
		"selects nothing":      {State: api.StateUnselected},
		"shadow":               {State: api.StateShadow},
		"no effect":            {State: api.StateNoEffect, Reason: "no effect on any proxy"},
		"no effect: redis speaks tcp": {State: api.StateNoEffect,
			Reason: "no effect on any proxy: redis speaks tcp"},
		"stale on 2 proxies: expired": {State: api.StateStale, LateTotal: 2, Late: []api.LateProxy{{Reason: "expired"}}},
		"inert":                       {State: api.StateInert},
		"replaced":                    {State: api.StateReplaced},
		"rejected by default/web and 1 more: l: a b": {State: api.StateRejected, RejectedTotal: 2,
			Rejected: []api.RejectedResource{{Mesh: "default", Name: "web", Resource: "l", Reason: "a\n b"}}},
	} {
		if got := text.AppliedState(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
