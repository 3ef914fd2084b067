package httpapi

import (
	"net/http"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// zoneConfig is GET /zoneegresses/{name}/_config, and the same of ingresses.
func (s *Server) zoneConfig(t node.Type) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		computed, e := boolQuery(r, "computed")
		if e != nil {
			return e
		}
		last := s.opts.Last()
		if last == nil {
			return notReady()
		}
		key := resource.Key{Kind: t.Kind(), Name: r.PathValue("name")}
		res := s.opts.Store.Snapshot().Set().Get(key)
		if res == nil {
			return notFound("%s does not exist", key)
		}
		c, _, err := render.ZoneConfig(last.ZoneInput(res), last.PublishedOf(node.Ref{Type: t, Name: key.Name}), computed,
			&s.rendered)
		if err != nil {
			return generationError(err)
		}
		writeJSON(w, http.StatusOK, c)
		return nil
	}
}

// zoneProxy is GET /v1/zoneegresses/{name}/status, and the same of ingresses.
func (s *Server) zoneProxy(t node.Type) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		ref := node.Ref{Type: t, Name: r.PathValue("name")}
		snap := s.opts.Store.Snapshot()
		if p := s.oneProxy(snap, s.opts.Last(), ref); p != nil {
			writeJSON(w, http.StatusOK, p)
			return nil
		}
		if snap.Set().Get(ref.Key()) == nil {
			return notFound("%s does not exist, and no client asks for it", ref.Key())
		}
		writeJSON(w, http.StatusOK, api.Proxy{Type: t, Name: ref.Name, State: api.StateDisconnected,
			Clients:  []api.ProxyStatus{},
			Problems: []api.Problem{},
			Reason: "no Envoy on this node takes its config; start one with the output of nearside bootstrap --proxy-type " +
				string(t)})
		return nil
	}
}
