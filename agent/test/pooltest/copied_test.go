package pooltest_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/source/peers"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestCopiedState checks that of two agents with copies of one state the later one takes another
// identity, that both report the copy, and that the pool keeps the earlier one.
func TestCopiedState(t *testing.T) {
	t.Parallel()
	all := newPool(t, 3)
	a, original, copied := all[0], all[1], all[2]
	startAll(a, original)
	a.apply(meshText)
	original.has("meshes", "default", "0")
	original.apply(agenttest.DataplaneText("default", "web", "127.0.0.2"))
	agree(all[:2])
	original.stop()
	copyState(t, original.state(), copied.state())
	original.start()
	copied.start()
	id := func(m *member) string {
		id, err := peers.OpenIdentity(m.state())
		agenttest.Do(t, err)
		return id.Node.String()
	}
	first := id(original)
	for _, m := range []*member{original, copied} {
		m.await("the check reports the copy", func() bool { return strings.Contains(m.checkOf(), first) })
	}
	copied.await("it has another identity", func() bool { return id(copied) != first })
	if id(original) != first {
		t.Error("the original has another identity")
	}
	a.await("all three are members", func() bool { return a.inSync(t.Context(), 3) == "" })
	a.apply(timeoutText("last", "9", "20s"))
	for _, m := range all {
		m.has("meshtimeouts", "last", "9")
	}
}
