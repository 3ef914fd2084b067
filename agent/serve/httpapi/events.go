package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/events"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// newEvents returns the server of events.
func (s *Server) newEvents() *events.Server {
	o := &s.opts
	return events.New(events.Options{Hub: cmp.Or(o.Events, new(events.Hub)), Instance: o.Info.Instance,
		Started: o.Info.Started, Revision: func() uint64 { return o.Store.Snapshot().Revision() }, Stopping: s.stopping,
		Watch: [2]func() (<-chan struct{}, func()){o.Store.Watch, o.Watch},
		Problems: func(ctx context.Context) ([]api.Problem, bool) {
			now := s.Status(ctx)
			last := now.Reconcile
			return now.Problems, last != nil && (last.Revision < now.Store.Revision || last.Behind > 0)
		}})
}

// watchEvents is GET /v1/events?types=&mesh=.
func (s *Server) watchEvents(w http.ResponseWriter, r *http.Request) *api.Error {
	x := events.Sender{
		May:   func(verb string, k resource.Key) bool { return s.may(r, verb, k) },
		Valid: func() string { return s.lapsed(r) },
	}
	if p := sender.Of(r); p.Token != nil {
		x.Expires = p.Token.Expires
	}
	s.audit.Started(r)
	s.events.Serve(w, r, x)
	return nil
}

// lapsed returns why the sender of an earlier request has lost its token or all its permissions, or
// "".
func (s *Server) lapsed(r *http.Request) string {
	text, ok := token.Bearer(r.Header.Values("Authorization"))
	if a := &s.opts.Access; ok && a.Verify != nil && (a.Token == "" || !sameToken(a.Token, text)) {
		if _, err := a.Verify(text); err != nil {
			return err.Error()
		}
	}
	if e := s.authorize(r, reader); e != nil {
		return e.Detail
	}
	return ""
}
