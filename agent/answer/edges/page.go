package edges

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxDestinations is how many names of its ports a service lists.
const maxDestinations = 16

// Query selects edges.
type Query struct {
	From, To string // names of services; "" selects all
	// All also selects pairs that no outbound connects, and denied ones that no dataplane names.
	// Setting both names has the same effect.
	All bool
	// Listed selects only pairs that a dataplane lists or that had traffic. All takes precedence.
	Listed  bool
	Visible Visible
	Traffic *Traffic // nil: none
}

// row is the clients of one service in an answer.
type row struct {
	from  int
	count int
}

// Page is the answer to a query.
type Page struct {
	g      *Graph
	q      Query
	rows   []row
	to     []int // nodes; nil for all
	totals *counts
	Total  int
}

// Page prepares the answer to a query. Without names and without a limit on what is visible, a
// Graph counts once.
func (g *Graph) Page(q Query) *Page {
	p := &Page{g: g, q: q}
	if q.Traffic == nil {
		p.q.Traffic = &Traffic{}
	}
	if q.From != "" && q.To != "" {
		p.q.All = true
	}
	if q.To != "" {
		i, ok := g.byName[q.To]
		if !ok || len(g.nodes[i].dests) == 0 {
			return p
		}
		p.to = []int{i}
	}
	if q.From != "" {
		if i, ok := g.byName[q.From]; ok {
			p.add(i, len(p.cells(i)))
		}
		return p
	}
	p.totals = g.countAll(q.Visible)
	withTraffic := map[int]bool{}
	for k := range p.q.Traffic.sent {
		withTraffic[k[0]] = true
	}
	for i := range g.nodes {
		if p.q.All || p.q.Listed || p.to != nil || withTraffic[i] {
			p.add(i, len(p.cells(i)))
		} else {
			p.add(i, p.totals.calls[i])
		}
	}
	return p
}

func (p *Page) add(from, n int) {
	if n > 0 {
		p.rows = append(p.rows, row{from, n})
		p.Total += n
	}
}

// cells returns the selected edges of a client.
func (p *Page) cells(from int) []cell {
	g := p.g
	groups := g.groups(g.members(g.nodes[from], p.q.Visible))
	if len(groups) == 0 {
		return nil
	}
	var out []cell
	add := func(to int) {
		if len(g.nodes[to].dests) == 0 {
			return
		}
		c := g.cell(groups, to)
		_, traffic := p.q.Traffic.sent[[2]int{from, to}]
		switch {
		case p.q.All, traffic, c.exists() && (!p.q.Listed || c.reach&listed != 0):
			out = append(out, c)
		}
	}
	if p.to != nil {
		for _, to := range p.to {
			add(to)
		}
		return out
	}
	for to := range g.nodes {
		add(to)
	}
	return out
}

// Edges returns the documents of a part of the answer, by client and destination.
func (p *Page) Edges(offset, size int) []api.Edge {
	out := []api.Edge{}
	for _, r := range p.rows {
		if size <= 0 {
			break
		}
		if offset >= r.count {
			offset -= r.count
			continue
		}
		cells := p.cells(r.from)
		cells = cells[offset:min(len(cells), offset+size)]
		offset, size = 0, size-len(cells)
		out = append(out, p.documents(r.from, cells)...)
	}
	return out
}

// documents returns the edges of one client.
func (p *Page) documents(from int, cells []cell) []api.Edge {
	g := p.g
	n := g.nodes[from]
	members := g.members(n, p.q.Visible)
	x := &explanation{g: g, members: members, permitted: map[int]*policy.Permissions{},
		reach: map[int]*policy.Reach{}, reached: map[int][]reachBits{}}
	out := make([]api.Edge, 0, len(cells))
	for i := range cells {
		c := &cells[i]
		e := api.Edge{Mesh: g.v.Name, From: n.name, To: g.nodes[c.to].name, Reach: c.reach&reachable != 0,
			Listed: c.reach&listed != 0, Proxies: len(members), Counted: p.q.Traffic.counted[from]}
		switch c.permission {
		case allowed:
			e.Permission = api.EdgeAllowed
		case denied:
			e.Permission = api.EdgeDenied
		default:
			e.Permission = api.EdgePartly
		}
		x.explain(c, &e)
		if t := p.q.Traffic.sent[[2]int{from, c.to}]; t.requests > 0 {
			e.Requests, e.Failed, e.Refused = t.requests, t.failed, t.refused
		} else {
			e.Requests, e.Failed = t.connections, t.unconnected
		}
		out = append(out, e)
	}
	return out
}

// Services returns all services of the mesh: none if no dataplane of it is visible, because
// dataplanes show what they may call. connected reports whether the proxy of a dataplane is
// connected; it may be nil.
func (p *Page) Services(connected Visible) []api.EdgeService {
	g := p.g
	out := []api.EdgeService{}
	if p.q.Visible != nil && !slices.ContainsFunc(g.callers, func(c caller) bool {
		return p.q.Visible(c.dataplane.Name)
	}) {
		return out
	}
	totals := p.totals
	if totals == nil {
		totals = g.countAll(p.q.Visible)
	}
	for i, n := range g.nodes {
		x := g.service(n, p.q.Visible, connected)
		x.Calls, x.CalledBy = totals.calls[i], totals.calledBy[i]
		out = append(out, x)
	}
	return out
}

func (g *Graph) service(n *node, visible, connected Visible) api.EdgeService {
	out := api.EdgeService{Mesh: g.v.Name, Name: n.name, Kind: cmp.Or(n.kind, api.KindServiceTag), Gateway: n.gateway,
		Zones: []string{}, Tags: map[string]string{}, Destinations: []string{}}
	zones := map[string]bool{}
	for _, i := range n.dests {
		s := g.v.Services()[i]
		if out.Protocol == "" {
			out.Protocol = string(s.Protocol)
		}
		if ns := s.Labels[resource.LabelNamespace]; ns != "" && out.Namespace == "" {
			out.Namespace = ns
		}
		out.Outside = out.Outside || s.Outside != nil
		if len(out.Destinations) < maxDestinations {
			out.Destinations = append(out.Destinations, effect.DestinationOf(s).String())
		}
		for j := range s.Endpoints.List {
			if z := s.Endpoints.List[j].Zone; z != "" {
				zones[z] = true
			}
		}
	}
	members := n.members
	if len(members) == 0 {
		members = n.servers
	}
	first := true
	for _, i := range members {
		c := &g.callers[i]
		if visible != nil && !visible(c.dataplane.Name) {
			continue
		}
		out.Dataplanes++
		if connected != nil && connected(c.dataplane.Name) {
			out.Connected++
		}
		if ns := c.dataplane.Namespace(); ns != "" && out.Namespace == "" {
			out.Namespace = ns
		}
		for _, tags := range policy.TagSets(g.v, c.spec) {
			if tags == nil || n.kind == mesh.KindTag && tags[resource.TagService] != n.name {
				continue
			}
			zones[tags[resource.TagZone]] = true
			if first {
				maps.Copy(out.Tags, tags)
				first = false
			}
			maps.DeleteFunc(out.Tags, func(k, v string) bool { return tags[k] != v })
		}
	}
	delete(out.Tags, resource.TagService)
	delete(out.Tags, resource.TagZone)
	out.Zones = append(out.Zones, slices.Sorted(maps.Keys(zones))...)
	return out
}
