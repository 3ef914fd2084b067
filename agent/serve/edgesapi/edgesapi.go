// Package edgesapi serves GET /v1/edges: which services may call which, with the counters of the
// Envoys of this node and the connections that they refused in the last hour.
//
// Requests share the results: edges are computed again only if the mesh has changed, and counters
// are read at most every few seconds, for all requests together.
package edgesapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/edges"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// Options configures [Edges]. Functions are called concurrently.
type Options struct {
	// Meshes returns the meshes of the last reconciliation by name, or nil before the first one.
	Meshes func() map[string]*generate.Mesh
	// Proxies returns the xDS clients. Nil: none.
	Proxies func() []api.ProxyStatus
	// Counts returns the counters of each connected Envoy by node ID. It may take seconds. Nil:
	// none.
	Counts func() map[string]api.ProxyCounts
	Now    func() time.Time
}

// Limits of answers and of the work for them.
const (
	maxServices = 10_000
	liveFor     = 5 * time.Second // how long counters and the state of clients are shared
)

// Edges serves the edges. It is safe for concurrent use.
type Edges struct {
	o Options

	mu       sync.Mutex
	graphs   map[string]*edges.Graph // by mesh
	live     *live
	refusals refusals
}

// live is the state of the clients of this node.
type live struct {
	at        time.Time
	connected map[resource.Key]bool
	counts    map[string]map[string]api.ProxyCounts // by mesh and dataplane
	silent    map[resource.Key]bool                 // connected Envoys without counters; true: in pods
}

// New returns the server of edges.
func New(o Options) *Edges {
	return &Edges{o: o, graphs: map[string]*edges.Graph{}}
}

// Serve answers GET /v1/edges. The sender sees what the dataplanes call for which visible returns
// true. pageSize is the default size of a page.
func (s *Edges) Serve(w http.ResponseWriter, r *http.Request, pageSize int,
	visible func(resource.Key) bool) *api.Error {
	size, offset, e := httpjson.Paging(r, pageSize)
	if e != nil {
		return e
	}
	q := r.URL.Query()
	all, e := httpjson.Bool(r, "all")
	if e != nil {
		return e
	}
	listed, e := httpjson.Bool(r, "listed")
	if e != nil {
		return e
	}
	meshes := s.o.Meshes()
	if meshes == nil {
		return api.NewNotReady()
	}
	names := slices.Sorted(maps.Keys(meshes))
	if name := q.Get("mesh"); name != "" {
		if meshes[name] == nil {
			return api.NewNotFound("mesh %q does not exist", name)
		}
		names = []string{name}
	}
	now := s.state()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.graphs {
		if meshes[name] == nil {
			delete(s.graphs, name)
		}
	}
	out := &api.Edges{Services: []api.EdgeService{}, Edges: []api.Edge{}, Refused: []api.EdgeRefusal{}}
	out.Counters.Complete = true
	for _, name := range names {
		sees := seesIn(name, visible)
		g := edges.NewGraph(meshes[name], s.graphs[name])
		s.graphs[name] = g
		p := g.Page(edges.Query{From: q.Get("from"), To: q.Get("to"), All: all, Listed: listed,
			Visible: sees, Traffic: g.Traffic(now.counts[name], sees)})
		if offset == 0 {
			services := p.Services(func(dataplane string) bool {
				return now.connected[resource.Key{Kind: kindDataplane, Mesh: name, Name: dataplane}]
			})
			n := min(len(services), maxServices-len(out.Services))
			out.Services, out.MoreServices = append(out.Services, services[:n]...), out.MoreServices+len(services)-n
			out.Refused = append(out.Refused, s.refusals.of(g, name, sees, now.at)...)
		}
		if at := offset - out.Total; at < p.Total && len(out.Edges) < size {
			out.Edges = append(out.Edges, p.Edges(max(0, at), size-len(out.Edges))...)
		}
		out.Total += p.Total
		now.describe(name, sees, &out.Counters)
	}
	out.Refused = mostRecent(out.Refused)
	out.Next = httpjson.NextPage(r, offset, size, out.Total)
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

const kindDataplane = "Dataplane"

// seesIn returns which dataplanes of a mesh are visible, or nil if all are.
func seesIn(mesh string, visible func(resource.Key) bool) edges.Visible {
	if visible(resource.Key{Kind: kindDataplane, Mesh: mesh}) {
		return nil
	}
	return func(name string) bool { return visible(resource.Key{Kind: kindDataplane, Mesh: mesh, Name: name}) }
}

// state returns the state of the clients, read at most every few seconds.
func (s *Edges) state() *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now()
	if l := s.live; l != nil && now.Sub(l.at) < liveFor && !now.Before(l.at) {
		return l
	}
	l := &live{at: now, connected: map[resource.Key]bool{}, counts: map[string]map[string]api.ProxyCounts{},
		silent: map[resource.Key]bool{}}
	var counts map[string]api.ProxyCounts
	if s.o.Counts != nil {
		counts = s.o.Counts()
	}
	var clients []api.ProxyStatus
	if s.o.Proxies != nil {
		clients = s.o.Proxies()
	}
	for i := range clients {
		p := &clients[i]
		if p.Type != node.ProxyDataplane || p.Streams == 0 {
			continue
		}
		k := resource.Key{Kind: kindDataplane, Mesh: p.Mesh, Name: p.Name}
		l.connected[k] = true
		c, known := counts[p.NodeID]
		switch {
		case known:
			if l.counts[p.Mesh] == nil {
				l.counts[p.Mesh] = map[string]api.ProxyCounts{}
			}
			l.counts[p.Mesh][p.Name] = c
		case p.Flavor == node.FlavorEnvoy:
			l.silent[k] = p.Peer.InPod()
		}
	}
	s.live = l
	return l
}

// Observe adds the counters of the connected Envoys by node ID to the history of refused
// connections. The agent calls it whenever it has read them.
func (s *Edges) Observe(of map[string]api.ProxyCounts) {
	counts := map[string]map[string]api.ProxyCounts{}
	for id, c := range of {
		ref, err := node.ParseRef(id)
		if err != nil {
			continue
		}
		if counts[ref.Mesh] == nil {
			counts[ref.Mesh] = map[string]api.ProxyCounts{}
		}
		counts[ref.Mesh][ref.Name] = c
	}
	s.refusals.observe(counts, s.o.Now())
}

// describe adds the visible Envoys of a mesh to the description of the counters.
func (l *live) describe(mesh string, sees edges.Visible, out *api.EdgeCounters) {
	for name, c := range l.counts[mesh] {
		if (sees == nil || sees(name)) && c.Uptime > 0 {
			since := l.at.Add(-c.Uptime).UTC().Truncate(time.Second)
			if out.Since == nil || since.Before(*out.Since) {
				out.Since = &since
			}
		}
	}
	for k, pod := range l.silent {
		if k.Mesh == mesh && (sees == nil || sees(k.Name)) {
			out.Silent++
			if pod {
				out.Pods++
			}
		}
	}
	if out.Silent > 0 {
		out.Complete = false
		out.Why = fmt.Sprintf("connected Envoys that do not report their counters: %d", out.Silent)
		if out.Pods > 0 {
			out.Why += fmt.Sprintf(" (in pods, where the agent cannot reach their admin sockets: %d)", out.Pods)
		}
	}
}
