package agent_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/store"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// publisher remembers what was published.
type publisher struct {
	mu        sync.Mutex
	connected []xds.NodeKey
	has       map[string]*draft.Sealed
	revision  map[string]uint64
	passes    int
	touched   map[string]int // how often a node got other bytes
	refused   map[string][]xds.Refusal
	accepted  *draft.Sealed
	epoch     uint64
}

func (p *publisher) connect(ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connected = nil
	for _, id := range ids {
		p.connected = append(p.connected, xds.NodeKey{ID: id, Flavor: xds.FlavorEnvoy})
	}
}

func (p *publisher) Connected() []xds.NodeKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.connected)
}

func (p *publisher) Accepted(xds.NodeKey) *draft.Sealed { return p.accepted }

func (p *publisher) Epoch(xds.NodeKey) uint64 { return p.epoch }

func (p *publisher) Publish(m map[xds.NodeKey]xds.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passes++
	for k, c := range m {
		if old, ok := p.has[k.ID]; !ok || old != c.Sealed {
			p.touched[k.ID]++
		}
		p.has[k.ID], p.revision[k.ID], p.refused[k.ID] = c.Sealed, c.Revision, c.Refused
	}
}

// of returns what a node has.
func (p *publisher) of(id string) *draft.Sealed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.has[id]
}

// take returns the passes so far and sets them back.
func (p *publisher) take() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.passes
	p.passes = 0
	return n
}

func newPublisher(ids ...string) *publisher {
	p := &publisher{has: map[string]*draft.Sealed{}, revision: map[string]uint64{}, touched: map[string]int{}, refused: map[string][]xds.Refusal{}}
	p.connect(ids...)
	return p
}

// pass makes one pass and returns its problems as "severity resource: reason".
func pass(r *agent.Reconciler) []string {
	r.Pass()
	var out []string
	for _, p := range r.Last().Problems {
		out = append(out, p.Severity+" "+p.Resource+": "+p.Reason)
	}
	return out
}

func twoProxies(t *testing.T) *store.Store {
	s := memory(t)
	byAPI(t, s, "---\ntype: Mesh\nname: default\n---\n"+dataplaneText("default", "web", "10.0.0.1")+"\n---\n"+dataplaneText("default", "other", "10.0.0.2"))
	return s
}

// breaker is a policy about the clusters.
func breaker(n int) string {
	return fmt.Sprintf("{type: MeshCircuitBreaker, mesh: default, name: limits, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: %d}}}]}}\n", n)
}
