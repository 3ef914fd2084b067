package httpapi

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/deliver/ads"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// States of a [Proxy], from the best to the one that most needs a look.
const (
	StateSynced       = "synced"       // every type that was asked for is sent and acknowledged
	StateElsewhere    = "elsewhere"    // the Dataplane belongs to another node of the pool, whose agent serves its client
	StateDisconnected = "disconnected" // the Dataplane exists, but no client on this node takes its config
	StatePending      = "pending"      // an answer to a config is outstanding
	StateRejected     = "rejected"     // the client refused something and keeps what it had
	StateUnknown      = "unknown"      // a client asks for a Dataplane that does not exist
)

// Proxies is GET /v1/dataplanes, sorted by mesh and name.
type Proxies struct {
	Total int     `json:"total"`
	Items []Proxy `json:"items"`
}

// Proxy is GET /v1/dataplanes/{mesh}/{name}/status: one proxy and how far it is with its config.
type Proxy struct {
	Type      node.Type `json:"type,omitempty"` // of proxies at the border of a zone, which have no mesh
	Mesh      string    `json:"mesh"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"` // why it is in that state, and what to do
	Dataplane bool      `json:"dataplane"`        // a Dataplane of that name exists
	// of the pool that the Dataplane belongs to, when that is another one
	Node     string            `json:"node,omitempty"`
	Liveness string            `json:"liveness,omitempty"` // of that node: see [resource.LabelLiveness]
	Clients  []ads.ProxyStatus `json:"clients"`            // at most one per flavor, connected or recently so
	Problems []Problem         `json:"problems"`           // with its Dataplane
	// RefusedConnections is how many connections to destinations outside of the mesh its Envoy has
	// refused since it started; null where the Envoy does not tell.
	RefusedConnections *uint64 `json:"refusedConnections"`
	// LogWritesFailed is how many writes to access logs its Envoy has not been able to make since it
	// started, each with the loss of some lines, and LogReopensFailed how often it could not open a
	// log anew; null where the Envoy does not tell.
	LogWritesFailed  *uint64 `json:"logWritesFailed"`
	LogReopensFailed *uint64 `json:"logReopensFailed"`
	// InForce is what policies let the proxy do as a whole, in the order in which they act. Not in
	// lists of proxies.
	InForce []explain.InForce `json:"inForce,omitempty"`
	Reach   *Saving           `json:"reach,omitempty"` // with include=reach, of a Dataplane that exists
}

// allProxies joins the Dataplanes with those who ask for their config.
func (s *Server) allProxies(snap *store.Snapshot, last *Last) []Proxy {
	byKey := map[resource.Key]*Proxy{}
	at := func(ref node.Ref) *Proxy {
		k := ref.Key()
		p := byKey[k]
		if p == nil {
			p = newProxy(ref)
			byKey[k] = p
		}
		return p
	}
	for _, res := range snap.Set().Kind(kindDataplane) {
		at(node.Ref{Mesh: res.Mesh, Name: res.Name}).belongs(snap)
	}
	if s.opts.Proxies != nil {
		for _, c := range s.opts.Proxies() {
			p := at(node.Ref{Type: c.Type, Mesh: c.Mesh, Name: c.Name})
			p.Clients = append(p.Clients, c)
		}
	}
	problems := map[string][]Problem{}
	if last != nil {
		for _, p := range last.Problems {
			problems[p.Resource] = append(problems[p.Resource], p)
		}
	}
	out := make([]Proxy, 0, len(byKey))
	for k, p := range byKey {
		p.conclude(problems[k.String()])
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Proxy) int {
		return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// oneProxy is allProxies for one, nil where there is neither its Dataplane nor a client.
func (s *Server) oneProxy(snap *store.Snapshot, last *Last, ref node.Ref) *Proxy {
	p := newProxy(ref)
	if ref.Key().Kind == kindDataplane {
		p.belongs(snap)
	}
	switch {
	case s.opts.ProxiesOf != nil:
		p.Clients = append(p.Clients, s.opts.ProxiesOf(ref)...)
	case s.opts.Proxies != nil:
		for _, c := range s.opts.Proxies() {
			if ref == (node.Ref{Type: c.Type, Mesh: c.Mesh, Name: c.Name}) {
				p.Clients = append(p.Clients, c)
			}
		}
	}
	if !p.Dataplane && len(p.Clients) == 0 {
		return nil
	}
	var problems []Problem
	if last != nil {
		for _, x := range last.Problems {
			if x.Resource == ref.Key().String() {
				problems = append(problems, x)
			}
		}
	}
	p.conclude(problems)
	return p
}

// proxyKey names the resource that a proxy is made of.
func proxyKey(p Proxy) resource.Key { return node.Ref{Type: p.Type, Mesh: p.Mesh, Name: p.Name}.Key() }

func newProxy(ref node.Ref) *Proxy {
	return &Proxy{Type: ref.Type, Mesh: ref.Mesh, Name: ref.Name, Clients: []ads.ProxyStatus{}, Problems: []Problem{}}
}

// belongs notes whether there is a Dataplane, and whose it is.
func (p *Proxy) belongs(snap *store.Snapshot) {
	rec, ok := snap.Get(resource.Key{Kind: kindDataplane, Mesh: p.Mesh, Name: p.Name})
	if p.Dataplane = ok; ok && rec.Source.Kind == store.SourcePeer {
		p.Node, p.Liveness = rec.Source.Detail, rec.Resource.Labels[resource.LabelLiveness]
	}
}

// conclude says in which state a proxy is, once its clients are known.
func (p *Proxy) conclude(problems []Problem) {
	p.Problems = append(p.Problems, problems...)
	slices.SortFunc(p.Clients, func(a, b ads.ProxyStatus) int { return cmp.Compare(a.Flavor, b.Flavor) })
	p.State, p.Reason = StateDisconnected,
		"no Envoy on this node takes its config; start one with the output of nearside bootstrap"
	if p.Node != "" {
		p.State, p.Reason = StateElsewhere, "it belongs to the node "+p.Node
		switch p.Liveness {
		case resource.LivenessDead:
			p.Reason += ", which does not answer"
		case resource.LivenessNoAgent:
			p.Reason += ", whose agent does not answer; the dataplane does"
		}
	}
	for i := range p.Clients {
		state, reason := clientState(&p.Clients[i])
		if state == StateUnknown && p.Dataplane {
			state, reason = StatePending, p.whyWithout()
		}
		if state != StateDisconnected &&
			(p.State == StateDisconnected || p.State == StateElsewhere || severity(state) > severity(p.State)) {
			p.State, p.Reason = state, reason
		}
	}
}

// whyWithout says why a client whose Dataplane exists has no config.
func (p *Proxy) whyWithout() string {
	for _, x := range p.Problems {
		if x.Severity == SeverityError {
			return "there is no config for it: " + x.Reason
		}
	}
	return "its config is being made"
}

const kindDataplane = "Dataplane"

func severity(state string) int {
	return slices.Index([]string{StateSynced, StateElsewhere, StateDisconnected, StatePending, StateRejected,
		StateUnknown}, state)
}

// clientState says how far a client is, and why not further.
func clientState(c *ads.ProxyStatus) (state, reason string) {
	switch c.State {
	case ads.StateDisconnected:
		return StateDisconnected, ""
	case ads.StateWaiting:
		return StatePending, "the agent has not loaded its state yet"
	case ads.StateUnknown:
		if c.Type != node.ProxyDataplane {
			return StateUnknown, fmt.Sprintf("node id %q asks for a %s that does not exist; apply it, "+
				"or fix the node id in the bootstrap", c.NodeID, c.Type.Kind())
		}
		return StateUnknown, fmt.Sprintf("node id %q asks for a Dataplane that does not exist; apply it, "+
			"or fix the node id in the bootstrap", c.NodeID)
	}
	for _, t := range c.Types {
		if t.NACK != nil {
			return StateRejected, t.NACK.Reason + because(t.NACK.Policies)
		}
		if len(t.Held) > 0 {
			return StateRejected, fmt.Sprintf("%s: %s%s", t.Held[0].Name, t.Held[0].Reason, because(t.Held[0].Policies))
		}
	}
	if c.InSync {
		return StateSynced, ""
	}
	return StatePending, "an acknowledgement is outstanding since " + lastSent(c).UTC().Format(time.RFC3339)
}

// lastSent is the time of the latest response, or of the connection when there was none.
func lastSent(c *ads.ProxyStatus) time.Time {
	at := c.ConnectedAt
	for _, t := range c.Types {
		if t.SentAt.After(at) {
			at = t.SentAt
		}
	}
	return at
}

func (s *Server) proxies(w http.ResponseWriter, r *http.Request) *Error {
	include, e := includes(r, "reach")
	if e != nil {
		return e
	}
	last := s.opts.Last()
	all := only(s.allProxies(s.opts.Store.Snapshot(), last), proxyKey, s.visible(r, access.VerbInspect))
	s.addCounts(all)
	if include["reach"] && last != nil {
		for i := range all {
			if m := last.Meshes[all[i].Mesh]; m != nil && r.Context().Err() == nil {
				all[i].Reach = s.savings.saving(m, all[i].Name)
			}
		}
	}
	writeJSON(w, http.StatusOK, Proxies{Total: len(all), Items: all})
	return nil
}

func (s *Server) proxy(w http.ResponseWriter, r *http.Request) *Error {
	mesh, name := r.PathValue("mesh"), r.PathValue("name")
	snap, last := s.opts.Store.Snapshot(), s.opts.Last()
	if p := s.oneProxy(snap, last, node.Ref{Mesh: mesh, Name: name}); p != nil {
		if last != nil && last.Meshes[mesh] != nil {
			p.InForce, _ = explain.ProxyInForce(last.Meshes[mesh], name) // nothing of a Dataplane that is not there
		}
		counted := []Proxy{*p}
		s.addCounts(counted)
		writeJSON(w, http.StatusOK, counted[0])
		return nil
	}
	if e := meshExists(snap, mesh); e != nil {
		return e
	}
	return notFound("mesh %q has no dataplane %q, and no client asks for it", mesh, name)
}
