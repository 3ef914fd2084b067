package ads_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestProgressIsShared: the progress is computed once after each change, for all callers.
func TestProgressIsShared(t *testing.T) {
	a := serving(t, config("CDS:c=1"))
	c := a.delta("default.web")
	c.subscribe(draft.TypeCluster, "*")
	c.wantAck("CDS c=1")
	a.wait(func() bool { return len(a.progress("default.web").Unanswered) == 0 })
	// The status includes the answer before watchers are notified, so one more change may follow.
	var first []rollout.Progress
	a.wait(func() bool {
		first = a.Progress()
		return &a.Progress()[0] == &first[0]
	})
	a.push(config("CDS:c=2"))
	resp := c.recv()
	// A sent response is in the status before the client answers it, although sending notifies no
	// watcher.
	a.wait(func() bool { return len(a.progress("default.web").Unanswered) == 1 })
	c.ack(resp)
	a.wait(func() bool { return len(a.progress("default.web").Unanswered) == 0 })
	if len(first[0].Unanswered) != 0 {
		t.Error("what was returned has changed")
	}
}

// TestStatusOfOne: StatusOf returns a proxy's entry of the status of all proxies.
func TestStatusOfOne(t *testing.T) {
	a := serving(t, config("CDS:c=1"))
	for _, id := range []string{"default.web", "default.other"} {
		a.delta(id).subscribe(draft.TypeCluster, "*")
	}
	a.wait(func() bool { return len(a.Status()) == 2 })
	if got := a.StatusOf(node.Ref{Mesh: "default", Name: "web"}); len(got) != 1 || got[0].NodeID != "default.web" {
		t.Errorf("%+v", got)
	}
	if got := a.StatusOf(node.Ref{Mesh: "default", Name: "missing"}); got == nil || len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
