package httpapi

import (
	"net/http"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// zoneConfig is GET /zoneegresses/{name}/_config, and the same for ingresses.
func (s *Server) zoneConfig(t node.Type) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		computed, e := httpjson.Bool(r, "computed")
		if e != nil {
			return e
		}
		last := s.opts.Last()
		if last == nil {
			return api.NewNotReady()
		}
		key := resource.Key{Kind: t.Kind(), Name: r.PathValue("name")}
		res := s.opts.Store.Snapshot().Set().Get(key)
		if res == nil {
			return api.NewNotFound("%s does not exist", key)
		}
		c, _, err := render.ZoneConfig(last.ZoneInput(res), last.PublishedOf(node.Ref{Type: t, Name: key.Name}), computed,
			&s.rendered)
		if err != nil {
			return generationError(err)
		}
		httpjson.Write(w, http.StatusOK, c)
		return nil
	}
}

// zoneProxy is GET /v1/zoneegresses/{name}/status, and the same for ingresses.
func (s *Server) zoneProxy(t node.Type) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		ref := node.Ref{Type: t, Name: r.PathValue("name")}
		p := s.tracker.One(s.opts.Store.Snapshot(), s.opts.Last(), ref)
		if p == nil {
			return api.NewNotFound("%s does not exist, and no client requests it", ref.Key())
		}
		httpjson.Write(w, http.StatusOK, p)
		return nil
	}
}
