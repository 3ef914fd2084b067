package agenttest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Publisher records the published configs.
type Publisher struct {
	mu        sync.Mutex
	connected []node.Key
	Has       map[string]*draft.Sealed
	Revision  map[string]uint64
	passes    int
	Touched   map[string]int // number of changes per node
	Withheld  map[string][]draft.Withheld
	Taken     map[string][]*draft.Resource // listeners accepted by a client
}

func (p *Publisher) Connect(ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connected = nil
	for _, id := range ids {
		p.connected = append(p.connected, node.Key{ID: id, Flavor: node.FlavorEnvoy})
	}
}

func (p *Publisher) Connected() []node.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.connected)
}

// Waiting returns nil: no node is waiting.
func (p *Publisher) Waiting() map[node.Key]time.Time { return nil }

func (p *Publisher) LastStream() uint64 { return 0 }

func (p *Publisher) Listeners(k node.Key) []*draft.Resource { return p.Taken[k.ID] }

func (p *Publisher) Publish(m map[node.Key]rollout.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passes++
	for k, c := range m {
		if old, ok := p.Has[k.ID]; !ok || old != c.Sealed {
			p.Touched[k.ID]++
		}
		p.Has[k.ID], p.Revision[k.ID], p.Withheld[k.ID] = c.Sealed, c.Revision, c.Withheld
	}
}

// Of returns the config of a node.
func (p *Publisher) Of(id string) *draft.Sealed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Has[id]
}

// Take returns the number of passes since the last call, and resets it.
func (p *Publisher) Take() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.passes
	p.passes = 0
	return n
}

func NewPublisher(ids ...string) *Publisher {
	p := &Publisher{Has: map[string]*draft.Sealed{}, Revision: map[string]uint64{}, Touched: map[string]int{},
		Withheld: map[string][]draft.Withheld{}, Taken: map[string][]*draft.Resource{}}
	p.Connect(ids...)
	return p
}

// Pass runs one pass and returns its problems as "severity resource: reason".
func Pass(r *reconcile.Reconciler) []string {
	r.Pass()
	var out []string
	for _, p := range r.Last().Problems {
		out = append(out, p.Severity+" "+p.Resource+": "+p.Reason)
	}
	return out
}

func TwoProxies(t *testing.T) *store.Store {
	s := Memory(t)
	ByAPI(t, s, "---\ntype: Mesh\nname: default\n---\n"+PortedText("default", "web", "10.0.0.1")+"\n---\n"+
		PortedText("default", "other", "10.0.0.2"))
	return s
}

// Breaker returns a policy that applies to all clusters.
func Breaker(n int) string {
	return fmt.Sprintf("{type: MeshCircuitBreaker, mesh: default, name: limits, spec: {targetRef: {kind: Mesh}, "+
		"to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: %d}}}]}}\n", n)
}
