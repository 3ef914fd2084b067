package httpapi

import (
	"net/http"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// drain is POST /v1/dataplanes/{mesh}/{name}/drain.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) *api.Error {
	limitBody(w, r, maxQuestion)
	body, e := s.body(r)
	if e != nil {
		return e
	}
	var q api.DrainRequest
	if e := decodeRequest(body, &q); e != nil {
		return e
	}
	if s.opts.Drain == nil {
		return unasked("this agent serves no proxies")
	}
	s.started(r)
	p := sender.Of(r)
	key := resource.Key{Kind: kindDataplane, Mesh: r.PathValue("mesh"), Name: r.PathValue("name")}
	out, e := s.opts.Drain(r.Context(), key, &q, p.Account())
	if e == nil {
		writeJSON(w, http.StatusOK, out)
	}
	return e
}
