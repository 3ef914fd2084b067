package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/ads"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const (
	// maxWait is how long one answer of POST /v1/wait may take: less than a connection may take for an
	// answer.
	maxWait = 25 * time.Second
	// waitQuiet is how long after a change it is looked again: changes come in bursts.
	waitQuiet = 10 * time.Millisecond
	// maxQuestion bounds the body of a question, in bytes.
	maxQuestion = 1 << 20
)

// wait is POST /v1/wait: it answers when a resource is in force on all proxies that it touches,
// when one rejects it, or how it stands when the time is up. It changes nothing; whoever may look
// into the resource may ask.
func (s *Server) wait(w http.ResponseWriter, r *http.Request) *api.Error {
	limitBody(w, r, maxQuestion)
	body, e := s.body(r)
	if e != nil {
		return e
	}
	var q api.Wait
	if e := decodeRequest(body, &q); e != nil {
		return e
	}
	key, timeout, e := s.checkWait(&q)
	if e != nil {
		return e
	}
	s.aboutKey(r, key)
	if e := s.can(r, access.VerbInspect, key); e != nil {
		return e
	}
	s.started(r)
	s.catchUp(r)
	proxies, stopProxies := s.watchProxies()
	defer stopProxies()
	stored, stopStored := s.opts.Store.Watch()
	defer stopStored()
	late := time.NewTimer(timeout)
	defer late.Stop()
	var others meshWait
	again, stopAgain := everyNode(q.Scope)
	defer stopAgain()
	for over := timeout == 0; ; {
		out, e := s.standing(key, &q)
		if e != nil {
			return e
		}
		if q.Scope == api.ScopeMesh {
			s.everywhere(r.Context(), key, &q, &out, &others)
		}
		if over || out.State != api.StatePending {
			writeJSON(w, http.StatusOK, out)
			return nil
		}
		select {
		case <-proxies:
		case <-stored:
		case <-again:
		case <-late.C:
			over = true
		case <-r.Context().Done():
			return nil // nobody is there any more
		case <-s.stopping:
			return stoppingError()
		}
		if !over {
			select {
			case <-time.After(waitQuiet):
			case <-late.C:
				over = true
			}
		}
	}
}

// catchUp waits for resource files that were changed before a request.
func (s *Server) catchUp(r *http.Request) {
	if s.opts.CatchUp != nil {
		s.opts.CatchUp(r.Context())
	}
}

func stoppingError() *api.Error {
	return problem(http.StatusServiceUnavailable, api.ProblemNotReady, "Shutting down",
		"the agent is shutting down; repeat the request once it is up again")
}

// watchProxies returns a channel that tells of progress of proxies, one that never does where there
// are none.
func (s *Server) watchProxies() (<-chan struct{}, func()) {
	if s.opts.Watch == nil {
		return nil, func() {}
	}
	return s.opts.Watch()
}

// checkWait reads a question.
func (s *Server) checkWait(q *api.Wait) (key resource.Key, timeout time.Duration, e *api.Error) {
	if key, e = s.named(q.Type, q.Mesh, q.Name); e != nil {
		return key, 0, e
	}
	switch q.For {
	case "", api.ForApplied, api.ForGone:
	default:
		return key, 0, invalidField("for", "%q is not possible; applied or gone", q.For)
	}
	switch q.Scope {
	case "", api.ScopeNode:
	case api.ScopeMesh:
		if s.opts.Pool == nil {
			return key, 0, invalidField("scope", "\"mesh\" is not possible: this agent stands alone; ask with \"node\"")
		}
	default:
		return key, 0, invalidField("scope", "%q is not possible; node or mesh", q.Scope)
	}
	if len(q.Late) > maxLate {
		return key, 0, invalidField("late", "has %d entries; at most %d", len(q.Late), maxLate)
	}
	timeout = maxWait
	if q.Timeout != "" {
		var err error
		if timeout, err = time.ParseDuration(q.Timeout); err != nil || timeout < 0 || timeout > maxWait {
			return key, 0, invalidField("timeout", "%q is not possible; a duration from 0s to %s", q.Timeout, maxWait)
		}
	}
	return key, timeout, nil
}

// standing says how far it is with what is waited for.
func (s *Server) standing(key resource.Key, q *api.Wait) (api.Applied, *api.Error) {
	x := s.situation(maxLate)
	rec, there := x.snap.Get(key)
	switch {
	case q.For == api.ForGone && there:
		out := api.Applied{Type: key.Kind, Mesh: key.Mesh, Name: key.Name, Revision: rec.Revision, State: api.StatePending,
			Late: []api.LateProxy{}, Rejected: []api.RejectedResource{}}
		out.Reason = fmt.Sprintf("it still exists, at revision %d from %s", rec.Revision, rec.Source)
		return out, nil
	case q.For == api.ForGone:
		out := x.gone(key)
		x.missed(&out, q.Late)
		return out, nil
	case !there:
		return api.Applied{}, s.missing(x.snap, key)
	}
	out := x.applied(rec)
	if out.State == api.StateApplied || out.State == api.StatePending {
		x.missed(&out, q.Late)
	}
	if x.last == nil || x.last.Revision < out.Revision && out.State != api.StateRejected && out.State != api.StateShadow &&
		out.State != api.StateInert {
		out.State, out.Reason = api.StatePending, "the configs with it are being made"
	}
	return out, nil
}

// missed adds proxies that were late and are not connected any more, or have no config yet after
// they have come back, as long as their Dataplanes exist.
func (x *situation) missed(out *api.Applied, late []string) {
	for _, id := range late {
		mesh, name, _ := strings.Cut(id, "/")
		if x.snap.Set().Get(resource.Key{Kind: kindDataplane, Mesh: mesh, Name: name}) == nil {
			continue
		}
		if !slices.ContainsFunc(x.proxies, func(p ads.Progress) bool {
			return p.Mesh == mesh && p.Name == name && p.State != api.StateDisconnected && p.State != api.StateUnknown
		}) {
			x.late(out, mesh, name, "it was connected before and has not come back yet")
		}
	}
	if out.LateTotal > 0 && out.State != api.StateRejected {
		out.State = api.StatePending
	}
}
