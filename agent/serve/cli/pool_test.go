package cli

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/keyring"
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
	keyring api.Keyring
}

func (p *fakePool) Members() []api.Member                                             { return p.members }
func (p *fakePool) Conflicts() []api.Conflict                                         { return nil }
func (p *fakePool) AskOthers(context.Context, []byte, time.Duration) []api.NodeAnswer { return nil }
func (p *fakePool) ConflictsElsewhere(context.Context) []api.NodeConflicts            { return p.others }

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

func (p *fakePool) Keyring(context.Context) api.Keyring { return p.keyring }

// TestKeyring checks that keyring commands compare the file with the agent and the other nodes, and
// that they say so if they cannot.
func TestKeyring(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyring")
	agenttest.WriteSecret(t, path, strings.Repeat("A", 43)+"=\n")
	first := "--set=gossip.keyringFile=" + path
	own, err := keyring.Open(path).List()
	agenttest.Do(t, err)
	out, errs := output(t, "/nowhere", command.ExitOK, "keyring", "list", first)
	agenttest.Contains(t, out, "KEY                ENCRYPTS\n"+own[0]+"   yes\n")
	agenttest.Contains(t, errs, "note: only the keys in "+path+" are known", "no agent answers at /nowhere")

	pool := &fakePool{keyring: api.Keyring{File: path, Nodes: 3, Unasked: []string{"z"}, Items: []api.PoolKey{
		{Fingerprint: "00aa", Loaded: true, Encrypts: true, MissingOn: []string{"b"}},
		{Fingerprint: "00bb", EncryptsOn: []string{"c"}}}}}
	socket := agenttest.API(t, func(o *httpapi.Options) { o.Pool = pool })
	out, errs = output(t, socket, command.ExitOK, "keyring", "list", first)
	agenttest.Contains(t, out, "KEY                FILE   AGENT   ENCRYPTS   MISSING-ON\n",
		"00aa               no     yes     yes        b\n", "00bb               no     no      no         -\n",
		own[0]+"   yes    no      no         -\n")
	agenttest.Contains(t, errs, "not asked, because dead: z")

	pool.keyring.Items = []api.PoolKey{{Fingerprint: own[0], Loaded: true, Encrypts: true, MissingOn: []string{"b", "c"}}}
	out, errs = output(t, socket, command.ExitOK, "keyring", "use", own[0], first)
	agenttest.Contains(t, out, "used "+own[0])
	agenttest.Contains(t, errs, "warning: nodes do not have it, and cannot decrypt the traffic of this node: b, c")
	pool.keyring.File = "/other"
	_, errs = output(t, socket, command.ExitOK, "keyring", "use", own[0], first)
	agenttest.Contains(t, errs, "because the agent uses /other")
}

func (p *fakePool) Compared(context.Context) []api.Member { return p.members }

// TestMembersScreen checks the columns about the state and the files of members.
func TestMembersScreen(t *testing.T) {
	since := time.Now().Add(-3 * time.Hour)
	pool := &fakePool{members: []api.Member{{Name: "n", Self: true, State: "alive", Since: since, InSync: true},
		{Name: "b", State: "alive", Since: since, InSync: true, Files: &api.MemberFiles{}},
		{Name: "c", State: "dead", Since: since, Lag: 42, Files: &api.MemberFiles{Total: 2}}}}
	socket := agenttest.API(t, func(o *httpapi.Options) {
		o.Pool = pool
		o.Ready = func() []api.Check {
			return []api.Check{{Name: "pool-state", OK: true, Degraded: true, Error: true, Reason: "it differs"}}
		}
	})
	out, _ := output(t, socket, command.ExitOK, "members")
	agenttest.Contains(t, out, "NAME            STATE   SINCE   ZONE", "IN-SYNC       FILES      CLOCK",
		"n (this node)   alive   3h ", "yes           -          0s", "b               alive   3h ",
		"yes           same       0s",
		"c               dead    3h ", "no, for 42s   2 differ   0s")
	pool.members = []api.Member{{Name: "d", State: "alive", PacketsLost: true, Incompatible: true}}
	out, _ = output(t, socket, command.ExitOK, "members")
	agenttest.Contains(t, out, "alive (incompatible) (UDP blocked)")
	pool.members = []api.Member{{Name: "e", State: "alive", ID: "00ff", Signed: true}, {Name: "f", State: "alive",
		ID: "1"}, {Name: "e", State: "refused", ID: "00aa", Signed: true, Reason: "the name is taken"}}
	out, _ = output(t, socket, command.ExitOK, "members", "-o", "wide")
	agenttest.Contains(t, out, "CLOCK   KEY    REASON\n", "0s      00ff   -\n", "0s      -      -\n",
		"0s      00aa   the name is taken\n")
	out, _ = output(t, socket, command.ExitNo, "status", "--exit-code")
	agenttest.Contains(t, out, ": ready\n", "FAIL pool-state: it differs")
	out, _ = output(t, socket, command.ExitNo, "check")
	agenttest.Contains(t, out, "FAIL pool-state: it differs", "run: nearside members")
}

// TestNodesWithOneName checks that status, check, and members report two living nodes with one
// name, and that a dead node with the name of another is no problem.
func TestNodesWithOneName(t *testing.T) {
	twin := api.Member{Name: "n", Address: "10.0.0.2:7946", State: "refused", ID: "00ff"}
	pool := &fakePool{members: []api.Member{{Name: "n", Self: true, Address: "10.0.0.1:7946", State: "alive", ID: "00aa"},
		twin, {Name: "dead", State: "dead"}, {Name: "dead", State: "alive"}}}
	socket := agenttest.API(t, func(o *httpapi.Options) { o.Pool = pool })
	const want = "FAIL name-twice: 2 living nodes have the name n: this node at 10.0.0.1:7946 with the key 00aa; " +
		"10.0.0.2:7946 with the key 00ff; set another node.name on all but one of them, and restart these"
	for _, state := range []string{"refused", "alive"} {
		pool.members[1].State = state
		out, _ := output(t, socket, command.ExitNo, "status", "--exit-code")
		agenttest.Contains(t, out, want, "run: nearside members -o wide")
		if strings.Count(out, "name-twice") != 1 {
			t.Errorf("several problems:\n%s", out)
		}
		out, _ = output(t, socket, command.ExitOK, "members")
		agenttest.Contains(t, out, "n (this node)   alive (another node has this name)",
			state+" (another node has this name)")
		out, _ = output(t, socket, command.ExitNo, "check")
		agenttest.Contains(t, out, want)
	}
	pool.members = append(pool.members[1:2], api.Member{Name: "m", Self: true, State: "alive"}, twin)
	out, _ := output(t, socket, command.ExitOK, "status")
	agenttest.Contains(t, out, "WARN name-twice: 2 living nodes have the name n: 10.0.0.2:7946")
}
