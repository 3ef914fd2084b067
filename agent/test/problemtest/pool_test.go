package problemtest

import (
	"net"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// nodeFaults are faults of a pool.
var nodeFaults = []fault{
	{name: "nobody to join", set: []string{"gossip.bind=127.0.0.1:0", "gossip.insecure=true", "gossip.join=127.0.0.1:1"},
		check: "peers", severity: warn, cause: "no address of gossip.join responds"},
	{name: "lost member", set: []string{"node.name=a", "gossip.bind=127.0.0.1:0", "gossip.insecure=true"},
		after: func(w *world) {
			other := pooled(w.t, "b", w.Addrs().Gossip.String())
			agenttest.Eventually(w.t, "the other node is known", func() bool {
				m, err := w.Api().Members(w.t.Context())
				return err == nil && len(m.Items) == 2 && m.Items[1].State == "alive"
			})
			agenttest.Do(w.t, other.Stop())
		}, check: "peers", severity: warn, cause: "1 member is dead: b", names: "dead", alerts: "NearsideMembersDead"},
	{name: "other files on a node", file: "{type: Mesh, name: default}", set: []string{"node.name=a",
		"gossip.bind=127.0.0.1:0", "gossip.insecure=true"}, after: func(w *world) {
		other := agenttest.Home(w.t)
		agenttest.Write(w.t, other+"/resources/a.yaml", "{type: Mesh, name: other}")
		pooledAt(w.t, other, "b", w.Addrs().Gossip.String())
	}, check: "pool-files", severity: warn, cause: "those of node b", names: "differ", alerts: "NearsidePoolFilesDiffer"},
	{name: "two nodes of one name", set: []string{"node.name=a", "gossip.bind=127.0.0.1:0", "gossip.insecure=true"},
		after: func(w *world) { pooled(w.t, "a", w.Addrs().Gossip.String()) }, check: "peers", severity: warn,
		cause: "a", names: "a"},
	{name: "messages that are invalid", set: []string{"node.name=a", "gossip.bind=127.0.0.1:0", "gossip.insecure=true"},
		after: func(w *world) {
			c, err := net.Dial("udp", w.Addrs().Gossip.String())
			agenttest.Do(w.t, err)
			_, err = c.Write(nil)
			agenttest.Do(w.t, err, c.Close())
		}, metric: `nearside_gossip_messages_dropped_total{reason="refused"}`, alerts: "NearsidePoolMessagesDropped"},
	{name: "changes that are late", set: []string{"node.name=a", "gossip.bind=127.0.0.1:0", "gossip.insecure=true"},
		after: func(w *world) {
			other := agenttest.Up(w.t, agenttest.Home(w.t), agent.Deps{Now: func() time.Time {
				return time.Now().Add(-25 * time.Second)
			}}, "node.name=b", "gossip.bind=127.0.0.1:0", "gossip.insecure=true", "gossip.join="+w.Addrs().Gossip.String())
			agenttest.Apply(w.t, other.Agent, "{type: Mesh, name: default}")
		}, metric: "nearside_gossip_convergence_seconds_count", repeats: true, alerts: "NearsidePoolSlow"},
	{name: "nodes that differ", set: []string{"node.name=a", "gossip.bind=127.0.0.1:0", "gossip.insecure=true"},
		after: func(w *world) {
			other := agenttest.Up(w.t, agenttest.Home(w.t), agent.Deps{Now: func() time.Time {
				return time.Now().Add(time.Hour)
			}}, "node.name=b", "gossip.bind=127.0.0.1:0", "gossip.insecure=true", "gossip.join="+w.Addrs().Gossip.String())
			agenttest.Apply(w.t, other.Agent, "{type: Mesh, name: default}")
		}, metric: "nearside_gossip_differs_seconds", alerts: "NearsidePoolDiffers"},
}
