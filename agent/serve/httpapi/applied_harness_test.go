package httpapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// proxySet is proxies whose progress a test sets.
type proxySet struct {
	mu      sync.Mutex
	list    []rollout.Progress
	changed chan struct{}
}

func (p *proxySet) progress() []rollout.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}

func (p *proxySet) watch() (<-chan struct{}, func()) { return p.changed, func() {} }

// set replaces the proxies and notifies watchers.
func (p *proxySet) set(list ...rollout.Progress) {
	p.mu.Lock()
	p.list = list
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// proxy is one that has answered a revision.
func proxy(name string, answered uint64, change ...func(*rollout.Progress)) rollout.Progress {
	p := rollout.Progress{Node: node.Key{ID: "default." + name, Flavor: node.FlavorEnvoy}, Mesh: "default", Name: name,
		State: api.StateServing, Revision: answered, Answered: answered}
	for _, f := range change {
		f(&p)
	}
	return p
}

// publishedAt is a config of a later revision than the proxy has answered.
func publishedAt(revision uint64) func(*rollout.Progress) {
	return func(p *rollout.Progress) {
		p.Revision, p.Unanswered, p.SentAt = revision, []string{"cluster", "listener"}, time.Unix(0, 0)
	}
}

// rejects is a listener that the proxy refuses.
func rejects(since, madeAt, attributedAt uint64, blame ...api.Blame) func(*rollout.Progress) {
	return func(p *rollout.Progress) {
		p.Rejected = append(p.Rejected, draft.Rejection{Node: p.Node, Mesh: p.Mesh, Name: p.Name,
			ID:       draft.ResourceID{TypeURL: draft.TypeListener, Name: "l"},
			Resource: &draft.Resource{Name: "l"}, Reason: "no good", Since: since, MadeAt: madeAt,
			Blame: blame, Attributed: attributedAt > 0, AttributedAt: attributedAt})
	}
}

func blames(typ, name, evidence string) api.Blame {
	return api.Blame{Type: typ, Mesh: "default", Name: name, Evidence: evidence, Paths: []string{}}
}

func in(state string) func(*rollout.Progress) { return func(p *rollout.Progress) { p.State = state } }

const appliedMesh = `
{type: Mesh, name: default}
---
{type: Mesh, name: other}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 90, tags: {kuma.io/service: back}}]}}
---
{type: Dataplane, mesh: default, name: back, networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: back}}], outbound: [{port: 90, tags: {kuma.io/service: web}}]}}
---
{type: MeshTimeout, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1s}}]}}
---
{type: MeshTimeout, mesh: default, name: web, spec: {targetRef: {kind: MeshService, name: web}, to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 2s}}]}}
---
{type: MeshTimeout, mesh: default, name: nobody, spec: {targetRef: {kind: MeshService, name: nobody}, to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 2s}}]}}
---
{type: MeshTimeout, mesh: default, name: shade, labels: {kuma.io/effect: shadow}, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 3s}}]}}
---
{type: Timeout, mesh: default, name: old, sources: [{match: {kuma.io/service: '*'}}], destinations: [{match: {kuma.io/service: '*'}}], conf: {connectTimeout: 4s}}
---
{type: CircuitBreaker, mesh: default, name: legacy, sources: [{match: {kuma.io/service: web}}], destinations: [{match: {kuma.io/service: '*'}}], conf: {thresholds: {maxRetries: 4}}}
`

// startApplied serves appliedMesh, in which each resource has its place as its revision, and some
// proxies.
func startApplied(t *testing.T) (*testAPI, *proxySet) {
	t.Helper()
	set := &proxySet{changed: make(chan struct{}, 1)}
	a := start(t, func(o *httpapi.Options) { o.Progress, o.Watch = set.progress, set.watch })
	a.put(store.Source{Kind: store.SourceAPI}, appliedMesh)
	a.reconcile()
	return a, set
}

// standing is the answer to a question, in words.
func standing(t *testing.T, body string) string {
	t.Helper()
	var x api.Applied
	if err := json.Unmarshal([]byte(body), &x); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	s := fmt.Sprintf("%s %d/%d", x.State, x.Acknowledged, x.Proxies)
	for _, p := range x.Late {
		s += " late " + p.Name
	}
	for _, p := range x.Rejected {
		s += fmt.Sprintf(" rejected %s %s", p.Name, p.Resource)
	}
	return s
}
