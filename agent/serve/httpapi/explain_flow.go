package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// explainFlow answers a question about a connection or a request. It handles one question or
// comparison at a time, because each computes the configs of several proxies.
func (s *Server) explainFlow(r *http.Request, q *explain.Question) (*explain.Flow, *api.Error) {
	target, member := &explain.Target{}, "connection"
	if q.Connection != nil {
		target = &q.Connection.Target
	} else {
		target, member = &q.Request.Target, "request"
	}
	if target.From == "" {
		return nil, httpjson.InvalidField(member+".from", "is empty; name the dataplane whose workload connects")
	}
	in := cmp.Or(target.Mesh, resource.DefaultMesh)
	if e := s.can(r, access.VerbInspect, resource.Key{Kind: kindDataplane, Mesh: in, Name: target.From}); e != nil {
		return nil, e
	}
	m, e := s.mesh(in)
	if e != nil {
		return nil, e
	}
	select {
	case s.comparing <- struct{}{}:
		defer func() { <-s.comparing }()
	case <-r.Context().Done():
		return nil, api.NewError(http.StatusServiceUnavailable, api.ProblemNotReady,
			"Busy", "the agent is working on another question; repeat the request in a moment")
	}
	traffic := explain.NewTraffic(m)
	if s.opts.DNS != nil {
		traffic.Names = func(string) *names.Table { return s.opts.DNS().Table }
	}
	if last := s.opts.Last(); last != nil {
		traffic.Build = func(dataplane string) *finding.Build {
			if p := last.PublishedOf(node.Ref{Type: node.ProxyDataplane, Mesh: in, Name: dataplane}); p != nil {
				return p.Build
			}
			return nil
		}
		traffic.OtherMesh = func(at netip.AddrPort) bool {
			for name, other := range last.Meshes {
				if name != in && explain.Receives(other, at) {
					return true
				}
			}
			return false
		}
	}
	if s.opts.InUse != nil {
		traffic.UseLive(func(dataplane string) *explain.Live {
			key := node.Key{ID: node.Ref{Type: node.ProxyDataplane, Mesh: in, Name: dataplane}.NodeID(),
				Flavor: node.FlavorEnvoy}
			u := s.opts.InUse(key)
			live := liveOf(u)
			if live != nil {
				live.Draining = s.opts.Drains.Live(r.Context(), key, u.Draining)
			}
			return live
		})
	}
	var out *explain.Flow
	var err error
	if q.Connection != nil {
		out, err = traffic.Connection(q.Connection)
	} else {
		out, err = traffic.Request(q.Request)
	}
	var bad *explain.QuestionError
	switch {
	case errors.As(err, &bad):
		return nil, httpjson.InvalidField(member+"."+bad.Field, "%s", bad.Reason)
	case err != nil:
		return nil, generationError(err)
	}
	if e := s.mayFlow(r, out); e != nil {
		return nil, e
	}
	// A newer store may have other resources with these names.
	if snap, last := s.opts.Store.Snapshot(), s.opts.Last(); last != nil && last.Revision == snap.Revision() {
		revisions(out, snap)
	}
	return out, nil
}

// liveOf returns the state of an Envoy for explanations.
func liveOf(u *rollout.InUse) *explain.Live {
	if u == nil {
		return nil
	}
	out := &explain.Live{Resources: u.Resources}
	for i := range u.Held {
		h := &u.Held[i]
		out.Held = append(out.Held, explain.Held{ID: h.ID, Reason: h.Reason, Check: h.By == api.HeldByCheck, Older: h.Older,
			Lacks: h.Lacks, Overtaken: h.Overtakes})
		if h.Substituted() {
			out.Held[i].Without = h.Without
		}
	}
	return out
}

// mayFlow refuses an explanation with server proxies that the sender may not inspect.
func (s *Server) mayFlow(r *http.Request, f *explain.Flow) *api.Error {
	for i := range f.Servers {
		d := f.Servers[i].Dataplane
		if e := s.can(r, access.VerbInspect, resource.Key{Kind: d.Type, Mesh: d.Mesh, Name: d.Name}); e != nil {
			return e
		}
	}
	if f.Shadow != nil {
		return s.mayFlow(r, f.Shadow)
	}
	return nil
}

// revisions adds the revisions of stored resources to an explanation.
func revisions(f *explain.Flow, snap *store.Snapshot) {
	set := func(list []api.FlowPolicy) {
		for i := range list {
			p := &list[i]
			if rec, ok := snap.Get(resource.Key{Kind: p.Type, Mesh: p.Mesh, Name: p.Name}); ok {
				p.Revision = rec.Revision
			}
		}
	}
	way := func(w *explain.Way) {
		set(w.Policies)
		for i := range w.Steps {
			set(w.Steps[i].Policies)
		}
		for i := range w.Effects {
			set(w.Effects[i].Policies)
		}
	}
	way(&f.Way)
	for i := range f.Servers {
		way(&f.Servers[i])
	}
	if f.Shadow != nil {
		revisions(f.Shadow, snap)
	}
}
