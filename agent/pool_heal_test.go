package agent_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// timeoutOf returns the request timeout of the policy "slow" on an agent, or "".
func timeoutOf(r *agenttest.Running) string {
	rec, ok := r.Store().Snapshot().Get(poolTimeout)
	if !ok {
		return ""
	}
	b, _ := resource.Marshal(rec.Resource) // the store has encoded it
	for _, v := range []string{"20s", "30s", "40s"} {
		if strings.Contains(string(b), v) {
			return v
		}
	}
	return "?"
}

// TestHealPool puts a policy dated 20 years ahead into force on two agents. A change of it is
// refused with the remedy. A heal restores the version before it on both agents, and changes work
// again, also after a restart.
func TestHealPool(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	up := func(dir, name, join string) *agenttest.Running {
		return agenttest.Up(t, dir, agent.Deps{Now: now}, "node.name="+name, "gossip.bind=127.0.0.1:0",
			"gossip.keyringFile="+keyringOf(t, dir, "A"), "gossip.join="+join)
	}
	dirs := []string{agenttest.ShortDir(t), agenttest.ShortDir(t)}
	a := up(dirs[0], "a", "")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n"+"---\n"+timeoutText("slow", "20s"))
	b := up(dirs[1], "b", a.Addrs().Gossip.String())
	has(t, b, poolTimeout, "gossip:a")
	ahead.Store(int64(20 * 365 * 24 * time.Hour))
	agenttest.Apply(t, b.Agent, timeoutText("slow", "30s"))
	agenttest.Eventually(t, "the policy of the future", func() bool { return timeoutOf(a) == "30s" })
	ahead.Store(0)
	refused := func(r *agenttest.Running, value string) error {
		_, err := r.Api().Apply(t.Context(), []byte(timeoutText("slow", value)), false)
		return err
	}
	if err := refused(a, "40s"); err == nil || !strings.Contains(err.Error(), "nearside pool heal") {
		t.Fatalf("a change of a policy of the future: %v", err)
	}
	if c := poolCheck(t, a, "pool-state"); !c.Error || !strings.Contains(c.Reason, "nearside pool heal") {
		t.Errorf("check: %+v", c)
	}
	plan, err := a.Api().Heal(t.Context(), api.PoolHeal{DryRun: true})
	agenttest.Do(t, err)
	if len(plan.Items) != 1 || plan.Items[0].Result != api.VoidRestored || plan.Era != 1 || timeoutOf(a) != "30s" {
		t.Errorf("dry run: %+v", plan)
	}
	if _, err := a.Api().Heal(t.Context(), api.PoolHeal{Evict: []string{"a"}}); err == nil {
		t.Error("a node evicts itself")
	}
	got, err := a.Api().Heal(t.Context(), api.PoolHeal{})
	agenttest.Do(t, err)
	if len(got.Items) != 1 || got.Items[0].Result != api.VoidRestored || timeoutOf(a) != "20s" {
		t.Errorf("heal: %+v, in force: %s", got, timeoutOf(a))
	}
	agenttest.Eventually(t, "the restored policy", func() bool { return timeoutOf(b) == "20s" })
	agenttest.Do(t, refused(b, "40s"))
	agenttest.Eventually(t, "a change after the heal", func() bool { return timeoutOf(a) == "40s" })
	agenttest.Do(t, b.Stop())
	b = up(dirs[1], "b", a.Addrs().Gossip.String())
	if timeoutOf(b) != "40s" {
		t.Errorf("after a restart: %s", timeoutOf(b))
	}
	got, err = b.Api().Heal(t.Context(), api.PoolHeal{Evict: []string{"a"}})
	agenttest.Do(t, err)
	if got.Era != 2 || len(got.Owners) != 1 || got.Owners[0] != "a" {
		t.Errorf("the second heal: %+v", got)
	}
}

// TestHealByRoot heals a pool with trust: the root key signs the heal, and the agent restores what
// it voided, which may be nothing.
func TestHealByRoot(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n")
	publishTrust(t, a, trustFile(t, 1, trust.ModeEnforce, nodeOf(t, a, "a")), a)
	plan, err := a.Api().Heal(t.Context(), api.PoolHeal{DryRun: true})
	agenttest.Do(t, err)
	if _, err := a.Api().Heal(t.Context(), api.PoolHeal{}); err == nil || !strings.Contains(err.Error(), "root key") {
		t.Errorf("a heal by the node: %v", err)
	}
	writeSigned(t, a, "root", engine.Put{Key: engine.Key{Kind: trust.KindHeal, Name: trust.HealName(plan.Era)},
		MediaType: "application/json", Body: []byte(plan.Statement)})
	got, err := a.Api().Heal(t.Context(), api.PoolHeal{Era: plan.Era})
	agenttest.Do(t, err)
	if got.Era != 1 || len(got.Items) != 0 {
		t.Errorf("the heal: %+v", got)
	}
	agenttest.Apply(t, a.Agent, timeoutText("slow", "20s"))
}
