package agent_test

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// liveness waits until a resource of another node has a liveness mark, or none if mark is empty.
func liveness(t *testing.T, r *agenttest.Running, k resource.Key, mark string) {
	t.Helper()
	changed, stop := r.Store().Watch()
	defer stop()
	agenttest.Await(t, fmt.Sprintf("%s is marked %q", k, mark), changed, func() bool {
		rec, ok := r.Store().Snapshot().Get(k)
		return ok && rec.Resource.Labels[resource.LabelLiveness] == mark
	})
}

// storeChanges returns a channel that receives a value on changes in the agent's store until the
// test ends.
func storeChanges(t *testing.T, r *agenttest.Running) <-chan struct{} {
	changed, stop := r.Store().Watch()
	t.Cleanup(stop)
	return changed
}

// TestAgentLost checks that the dataplanes of a node with a dead agent stay in use while they
// respond, and are marked otherwise.
func TestAgentLost(t *testing.T) {
	t.Parallel()
	dir := agenttest.ShortDir(t)
	a := pooled(t, dir, "a", "")
	join := a.Addrs().Gossip.String()
	b := pooled(t, agenttest.ShortDir(t), "b", join)
	c := pooled(t, agenttest.ShortDir(t), "c", join)
	workload, err := net.Listen("tcp", "127.0.0.1:0")
	agenttest.Do(t, err)
	defer workload.Close()
	var tries atomic.Int64
	go func() {
		for {
			conn, err := workload.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			_ = conn.Close()
		}
	}()
	port := workload.Addr().(*net.TCPAddr).Port
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n---\ntype: Dataplane\nmesh: default\nname: web\n"+
		"networking:\n  address: 127.0.0.1\n  inbound:\n  - port: "+fmt.Sprint(port)+
		"\n    tags: {kuma.io/service: web}\n---\n"+agenttest.DataplaneText("default", "silent", "127.0.0.2"))
	silent := resource.Key{Kind: "Dataplane", Mesh: "default", Name: "silent"}
	for _, r := range []*agenttest.Running{b, c} {
		has(t, r, poolWeb, "peer:a")
		has(t, r, silent, "peer:a")
	}

	agenttest.Do(t, a.Stop())
	for _, r := range []*agenttest.Running{b, c} {
		liveness(t, r, poolWeb, resource.LivenessNoAgent)
		liveness(t, r, silent, resource.LivenessDead)
		agenttest.Eventually(t, "the check says so", func() bool {
			return strings.Contains(checkOf(t, r), "the agent of node a does not respond, but 1 of its dataplanes does")
		})
	}
	members, err := b.Api().Members(t.Context())
	agenttest.Do(t, err)
	if m := members.Items[0]; m.State != "dead" || !m.AgentLost {
		t.Errorf("member %+v", m)
	}

	if p, err := b.Api().Proxy(t.Context(), "default", "web"); err != nil || p.State != api.StateElsewhere ||
		p.Node != "a" || !strings.Contains(p.Reason, "whose agent does not respond") {
		t.Errorf("proxy %+v, %v", p, err)
	}

	before, changes := tries.Load(), 40
	for i := range changes {
		agenttest.Apply(t, b.Agent, agenttest.DataplaneText("default", "other", fmt.Sprintf("127.0.1.%d", i+1)))
		agenttest.Await(t, "the change of another node comes", storeChanges(t, c), func() bool {
			rec, ok := c.Store().Snapshot().Get(resource.Key{Kind: "Dataplane", Mesh: "default", Name: "other"})
			if !ok {
				return false
			}
			dp, is := rec.Resource.Spec.(*resource.Dataplane)
			return is && dp.Networking.Address == fmt.Sprintf("127.0.1.%d", i+1)
		})
	}
	if n := tries.Load() - before; n >= int64(changes)/2 {
		t.Errorf("a dead node was tried %d times for %d changes that have nothing to do with it", n, changes)
	}

	agenttest.Do(t, workload.Close())
	liveness(t, b, poolWeb, resource.LivenessDead)
	liveness(t, c, poolWeb, resource.LivenessDead)

	a = pooled(t, dir, "a", b.Addrs().Gossip.String())
	for _, r := range []*agenttest.Running{b, c} {
		liveness(t, r, poolWeb, "")
		liveness(t, r, silent, "")
	}
	if rec, _ := a.Store().Snapshot().Get(poolWeb); rec.Resource.Labels[resource.LabelLiveness] != "" {
		t.Error("a node marks its own")
	}
}
