package httpapi

import (
	"net/http"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// edges is GET /v1/edges.
func (s *Server) edges(w http.ResponseWriter, r *http.Request) *api.Error {
	if s.opts.Edges == nil {
		return api.NewNotReady()
	}
	p := sender.Of(r)
	a := access.Action{Verb: access.VerbInspect, Kind: kindDataplane, Mesh: r.URL.Query().Get("mesh")}
	if err := s.opts.Access.Roles.CanSome(&p, a); err != nil {
		return denied(err)
	}
	return s.opts.Edges(w, r, s.limits.PageSize, s.visible(r, access.VerbInspect))
}
