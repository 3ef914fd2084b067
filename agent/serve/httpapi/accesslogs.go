package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

func (s *Server) accessLogs(w http.ResponseWriter, r *http.Request) *api.Error {
	v := s.viewOf(r)
	out := s.tracker.AccessLogs(&v)
	if v.Whole {
		out.AuditFile = s.opts.AuditFile
		if s.opts.AuditChain != nil {
			out.AuditChain = s.opts.AuditChain()
		}
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// logs is GET /v1/logs.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) *api.Error {
	if s.opts.ReadLogs == nil {
		return api.NewNotReady()
	}
	return s.opts.ReadLogs(w, r, func(verb string, k resource.Key) bool {
		select {
		case <-s.stopping: // ends requests that follow logs
			return false
		default:
			return s.may(r, verb, k)
		}
	})
}

// flushTime bounds the wait for an Envoy.
const flushTime = 5 * time.Second

// flushLogs is POST /v1/accesslogs/flush?mesh=&dataplane=.
func (s *Server) flushLogs(w http.ResponseWriter, r *http.Request) *api.Error {
	q := r.URL.Query()
	k := resource.Key{Kind: kindDataplane, Mesh: q.Get("mesh"), Name: q.Get("dataplane")}
	switch {
	case k.Mesh == "":
		return httpjson.InvalidQuery("mesh", "", "name the mesh of the dataplane")
	case k.Name == "":
		return httpjson.InvalidQuery("dataplane", "", "name the dataplane whose Envoy flushes its logs")
	}
	if e := s.can(r, access.VerbInspect, k); e != nil {
		return e
	}
	known := false
	var err error
	if s.opts.FlushLogs != nil {
		ctx, cancel := context.WithTimeout(r.Context(), flushTime)
		defer cancel()
		known, err = s.opts.FlushLogs(ctx, k.Mesh, k.Name)
	}
	switch {
	case !known:
		return api.NewNotFound("no Envoy of %s logs through this agent", k)
	case err != nil:
		return api.NewError(http.StatusServiceUnavailable, api.ProblemNotReady, "Envoy did not answer",
			"the Envoy of %s could not flush its logs: %s", k, err.Error())
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
