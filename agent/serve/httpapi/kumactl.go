package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// This file implements the paths that kumactl requests in addition to resources. docs/api.md lists
// the differences from Kuma.

// overviews is GET …/_overview?tag=KEY:VALUE&gateway=true&name=. As in Kuma, ingress=true, which
// kumactl sends, has no effect.
func (s *Server) overviews(kind string) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		snap, mesh := s.opts.Store.Snapshot(), r.PathValue("mesh")
		if e := write.MeshExists(snap, mesh); e != nil {
			return e
		}
		if _, e := httpjson.Bool(r, "ingress"); e != nil {
			return e
		}
		q, visible := r.URL.Query(), s.visible(r, access.VerbInspect)
		all, overview := s.tracker.Overviews(snap, kind, mesh, func(res *resource.Resource) bool {
			return visible(res.Key) && status.HasTags(res, q["tag"], q.Get("gateway"), q.Get("name"))
		})
		return httpjson.WritePage(w, r, s.limits.PageSize, all, func(res *resource.Resource) (json.RawMessage, *api.Error) {
			doc, err := overview(res)
			if err != nil {
				return nil, encodeFailed(res.Key, err)
			}
			return doc, nil
		})
	}
}

// overview is GET /meshes/{mesh}/dataplanes/{name}/_overview.
func (s *Server) overview(w http.ResponseWriter, r *http.Request) *api.Error {
	snap, key := s.opts.Store.Snapshot(), resource.Key{Kind: kindDataplane, Mesh: r.PathValue("mesh"),
		Name: r.PathValue("name")}
	list, show := s.tracker.Overviews(snap, key.Kind, key.Mesh, func(res *resource.Resource) bool {
		return res.Name == key.Name
	})
	if len(list) == 0 {
		return write.Missing(snap, key)
	}
	doc, err := show(list[0])
	if err != nil {
		return encodeFailed(key, err)
	}
	httpjson.Write(w, http.StatusOK, doc)
	return nil
}
