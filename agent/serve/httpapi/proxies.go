package httpapi

import (
	"net/http"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

func (s *Server) proxies(w http.ResponseWriter, r *http.Request) *api.Error {
	include, e := includes(r, "reach")
	if e != nil {
		return e
	}
	last := s.opts.Last()
	all := only(s.tracker.All(s.opts.Store.Snapshot(), last), proxyKey, s.visible(r, access.VerbInspect))
	if s.opts.Counts != nil {
		status.AddCounts(all, s.opts.Counts())
	}
	if include["reach"] && last != nil {
		s.saving.Lock() // one at a time
		defer s.saving.Unlock()
		var savings render.Savings
		for i := range all {
			if m := last.Meshes[all[i].Mesh]; m != nil && r.Context().Err() == nil {
				all[i].Reach = savings.Of(m, all[i].Name)
			}
		}
	}
	httpjson.Write(w, http.StatusOK, api.Proxies{Total: len(all), Items: all})
	return nil
}

func (s *Server) proxy(w http.ResponseWriter, r *http.Request) *api.Error {
	mesh, name := r.PathValue("mesh"), r.PathValue("name")
	snap, last := s.opts.Store.Snapshot(), s.opts.Last()
	if p := s.tracker.One(snap, last, node.Ref{Mesh: mesh, Name: name}); p != nil {
		if last != nil && last.Meshes[mesh] != nil {
			p.InForce, _ = explain.ProxyInForce(last.Meshes[mesh], name) // empty for a missing Dataplane
		}
		s.tracker.AddLogs(p)
		httpjson.Write(w, http.StatusOK, *p)
		return nil
	}
	if e := write.MeshExists(snap, mesh); e != nil {
		return e
	}
	return api.NewNotFound("mesh %q has no dataplane %q, and no client requests it", mesh, name)
}

func proxyKey(p api.Proxy) resource.Key { return status.Key(&p) }
