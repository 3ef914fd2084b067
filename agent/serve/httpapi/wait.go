package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

const (
	// maxWait bounds one answer of POST /v1/wait. It is shorter than the write timeout of a
	// connection.
	maxWait = 25 * time.Second
	// maxQuestion bounds the body of a question, in bytes.
	maxQuestion = 1 << 20
)

// wait is POST /v1/wait. It answers when all affected proxies have applied a resource, when one
// rejects it, or when the time is up. It changes nothing, and requires permission to inspect the
// resource.
func (s *Server) wait(w http.ResponseWriter, r *http.Request) *api.Error {
	httpjson.LimitBody(w, r, maxQuestion)
	body, e := httpjson.Body(r)
	if e != nil {
		return e
	}
	var q api.Wait
	if e := httpjson.Decode(body, &q); e != nil {
		return e
	}
	key, timeout, e := s.checkWait(&q)
	if e != nil {
		return e
	}
	s.audit.About(r, key)
	if e := s.can(r, access.VerbInspect, key); e != nil {
		return e
	}
	s.audit.Started(r)
	s.catchUp(r)
	out, there, err := s.tracker.Wait(r.Context(), s.stopping, key, &q, timeout)
	switch {
	case errors.Is(err, status.ErrStopped):
		return stoppingError()
	case err != nil:
		return nil // the client disconnected
	case !there:
		return write.Missing(s.opts.Store.Snapshot(), key)
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// catchUp waits for resource files that changed before a request.
func (s *Server) catchUp(r *http.Request) {
	if s.opts.CatchUp != nil {
		s.opts.CatchUp(r.Context())
	}
}

func stoppingError() *api.Error {
	return api.NewError(http.StatusServiceUnavailable, api.ProblemNotReady, "Shutting down",
		"the agent is shutting down; repeat the request when it runs again")
}

// checkWait validates a question.
func (s *Server) checkWait(q *api.Wait) (key resource.Key, timeout time.Duration, e *api.Error) {
	if key, e = s.named(q.Type, q.Mesh, q.Name); e != nil {
		return key, 0, e
	}
	switch q.For {
	case "", api.ForApplied, api.ForGone:
	default:
		return key, 0, httpjson.InvalidField("for", "%q is invalid; use applied or gone", q.For)
	}
	switch q.Scope {
	case "", api.ScopeNode:
	case api.ScopeMesh:
		if s.opts.Pool == nil {
			return key, 0, httpjson.InvalidField("scope", "\"mesh\" is invalid: this agent is not in a pool; use \"node\"")
		}
	default:
		return key, 0, httpjson.InvalidField("scope", "%q is invalid; use node or mesh", q.Scope)
	}
	if len(q.Late) > status.MaxLate {
		return key, 0, httpjson.InvalidField("late", "has %d entries; at most %d are allowed", len(q.Late), status.MaxLate)
	}
	timeout = maxWait
	if q.Timeout != "" {
		var err error
		if timeout, err = time.ParseDuration(q.Timeout); err != nil || timeout < 0 || timeout > maxWait {
			return key, 0, httpjson.InvalidField("timeout", "%q is invalid; give a duration from 0s to %s", q.Timeout, maxWait)
		}
	}
	return key, timeout, nil
}

// appliedList is GET /v1/applied/{plural}?mesh=&name=.
func (s *Server) appliedList(w http.ResponseWriter, r *http.Request) *api.Error {
	plural := r.PathValue("plural")
	d, ok := s.opts.Registry.Lookup(plural)
	if !ok {
		return api.NewNotFound("there is no kind %q", plural)
	}
	q, visible := r.URL.Query(), s.visible(r, access.VerbInspect)
	httpjson.Write(w, http.StatusOK, s.tracker.List(r.Context(), d.Kind, func(k resource.Key) bool {
		mesh, name := q.Get("mesh"), q.Get("name")
		return (mesh == "" || mesh == k.Mesh) && (name == "" || name == k.Name) && visible(k)
	}))
	return nil
}
