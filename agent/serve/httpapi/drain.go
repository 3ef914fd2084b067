package httpapi

import (
	"net/http"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// drain is POST /v1/dataplanes/{mesh}/{name}/drain.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) *api.Error {
	httpjson.LimitBody(w, r, maxQuestion)
	body, e := httpjson.Body(r)
	if e != nil {
		return e
	}
	var q api.DrainRequest
	if e := httpjson.Decode(body, &q); e != nil {
		return e
	}
	if s.opts.Drain == nil {
		return unasked("this agent serves no proxies")
	}
	s.audit.Started(r)
	p := sender.Of(r)
	key := resource.Key{Kind: kindDataplane, Mesh: r.PathValue("mesh"), Name: r.PathValue("name")}
	out, e := s.opts.Drain(r.Context(), key, &q, p.Account())
	if e == nil {
		httpjson.Write(w, http.StatusOK, out)
	}
	return e
}
