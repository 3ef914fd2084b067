package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// logLines sums up streams. It counts input where lines enter the agent, and output where they
// leave it.
func logLines(streams []api.LogStream) *api.LogLines {
	out := &api.LogLines{Streams: len(streams), Dropped: map[string]uint64{}}
	for i := range streams {
		s := &streams[i]
		if s.Kind == api.LogFIFO || s.Kind == api.LogReceiver || s.Kind == api.LogOTLP {
			out.Read += s.In
		}
		if s.Kind != api.LogFIFO { // counted by the stream of the file or collector
			out.Written += s.Written
		}
		out.Spooled += s.Spooled
		out.InFlight += s.InFlight
		for cause, n := range s.Dropped {
			out.Dropped[cause] += n
		}
	}
	return out
}

// logStreams returns the streams that the sender may see.
func (s *Server) logStreams(r *http.Request) []api.LogStream {
	if s.opts.AccessLogs == nil {
		return nil
	}
	visible, whole := s.visible(r, access.VerbInspect), s.may(r, access.VerbInspect, resource.Key{})
	return only(s.opts.AccessLogs(), func(x api.LogStream) resource.Key {
		return resource.Key{Kind: kindDataplane, Mesh: x.Mesh, Name: x.Dataplane}
	}, func(k resource.Key) bool {
		// destinations contain lines of all dataplanes
		return whole || k.Mesh != "" && k.Name != "" && visible(k)
	})
}

func (s *Server) accessLogs(w http.ResponseWriter, r *http.Request) *api.Error {
	out := api.AccessLogs{Items: s.logStreams(r)}
	out.Total = len(out.Items)
	if out.Items == nil {
		out.Items = []api.LogStream{}
	}
	if s.may(r, access.VerbInspect, resource.Key{}) {
		out.AuditFile = s.opts.AuditFile
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// flushTime bounds the wait for an Envoy.
const flushTime = 5 * time.Second

// flushLogs is POST /v1/accesslogs/flush?mesh=&dataplane=.
func (s *Server) flushLogs(w http.ResponseWriter, r *http.Request) *api.Error {
	q := r.URL.Query()
	k := resource.Key{Kind: kindDataplane, Mesh: q.Get("mesh"), Name: q.Get("dataplane")}
	switch {
	case k.Mesh == "":
		return invalidQuery("mesh", "", "name the mesh of the dataplane")
	case k.Name == "":
		return invalidQuery("dataplane", "", "name the dataplane whose Envoy flushes its logs")
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
