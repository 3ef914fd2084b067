package pooltest_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// writerRecords is the number of records that one node may write.
const writerRecords = 10_000

// TestBatchAboveLimit checks that a batch with more resources than a node may write is refused as a
// whole, and that all nodes have the same resources afterwards.
func TestBatchAboveLimit(t *testing.T) {
	t.Parallel()
	all := startPool(t, 2)
	a, b := all[0], all[1]
	a.apply(meshText)
	var text strings.Builder
	for i := range writerRecords + 1 {
		text.WriteString("---\n" + timeoutText(fmt.Sprintf("many-%d", i), "1", "20s"))
	}
	if _, err := a.api.Apply(t.Context(), []byte(text.String()), false); err == nil {
		t.Error("the batch is accepted")
	} else if !strings.Contains(err.Error(), "limit") {
		t.Errorf("the error does not name the limit: %v", err)
	}
	a.apply(timeoutText("one", "2", "20s"))
	b.has("meshtimeouts", "one", "2")
	if got := agree(all); len(got) != 2 {
		t.Errorf("%d resources, want the mesh and one policy", len(got))
	}
}

// TestDeletedNamesAndLimit checks that a node that has deleted more names than it may write still
// accepts new resources, which other nodes receive.
func TestDeletedNamesAndLimit(t *testing.T) {
	t.Parallel()
	var all []*agenttest.Running
	join := ""
	for i := range 2 {
		dir := agenttest.ShortDir(t)
		agenttest.WriteSecret(t, filepath.Join(dir, "keyring"), strings.Repeat("A", 43)+"=\n")
		set := []string{fmt.Sprintf("node.name=n%d", i), "gossip.bind=127.0.0.1:0",
			"gossip.keyringFile=" + filepath.Join(dir, "keyring")}
		if join != "" {
			set = append(set, "gossip.join="+join)
		}
		r := agenttest.Up(t, dir, agent.Deps{}, set...)
		all, join = append(all, r), r.Addrs().Gossip.String()
	}
	a, b := all[0], all[1]
	agenttest.Apply(t, a.Agent, meshText)
	const step = writerRecords / 2
	for k := range 3 {
		var text strings.Builder
		batch := store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true, Author: "test"}
		for i := range step {
			name := fmt.Sprintf("deleted-%d-%d", k, i)
			text.WriteString("---\n" + timeoutText(name, "1", "20s"))
			batch.Ops = append(batch.Ops, store.Op{Delete: resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: name}})
		}
		agenttest.Apply(t, a.Agent, text.String())
		if _, err := a.Store().Apply(batch); err != nil {
			t.Fatal(err)
		}
	}
	agenttest.Apply(t, a.Agent, timeoutText("one", "2", "20s"))
	agenttest.Eventually(t, "the other node has the new resource, and no deleted one", func() bool {
		list := b.Store().Snapshot().Records()
		return len(list) == 2 && len(a.Store().Snapshot().Records()) == 2 && list[1].Name == "one"
	})
}
