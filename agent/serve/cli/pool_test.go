package cli

import (
	"context"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// fakePool is a pool with fixed answers.
type fakePool struct {
	httpapi.Pool
	members []api.Member
	others  []api.NodeConflicts
}

func (p *fakePool) Members() []api.Member                                  { return p.members }
func (p *fakePool) Conflicts() []api.Conflict                              { return nil }
func (p *fakePool) ConflictsElsewhere(context.Context) []api.NodeConflicts { return p.others }

// TestConflictsOfAllNodes checks the table, and that a node without an answer is named and gives
// another exit code than a dead one.
func TestConflictsOfAllNodes(t *testing.T) {
	pool := &fakePool{members: []api.Member{{Name: "n", Self: true, State: "alive"}, {Name: "c", State: "dead"}},
		others: []api.NodeConflicts{{Node: "b", Items: []api.ConflictItem{api.NewConflictItem(
			api.Conflict{ID: "17", State: api.ConflictLost, Node: "x",
				Key: resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: "slow"}})}}}}
	socket := agenttest.API(t, func(o *httpapi.Options) { o.Pool = pool })
	out, errs := output(t, socket, command.ExitOK, "conflicts", "--all-nodes")
	agenttest.Contains(t, out, "FOUND-ON", "17", "meshtimeout/slow in mesh default", "changed   b")
	agenttest.Contains(t, errs, "not asked, because dead: c")
	pool.others = append(pool.others, api.NodeConflicts{Node: "d", Missing: "it has not responded"})
	out, errs = output(t, socket, command.ExitTimeout, "conflicts", "--all-nodes", "-o", "json")
	agenttest.Contains(t, out, `"foundOn"`, `"unanswered"`)
	agenttest.Contains(t, errs, "node d: it has not responded")
	if out, _ := output(t, socket, command.ExitOK, "conflicts"); out != "ID   RESOURCE   STATE   WRITTEN   ON   WHAT\n" {
		t.Errorf("of this node:\n%s", out)
	}
}
