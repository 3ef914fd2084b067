package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// long is a request that may take longer than others: while it goes on, so do its deadlines.
type long struct {
	w     http.ResponseWriter
	limit time.Duration // to write after the last sign of life
	every time.Duration // between two of these
	tells bool
	next  time.Time
}

type longKey struct{}

// longer serves requests that may take long. Whoever asked gets signs of life, and one that went
// away ends the work: the context of the request ends.
func (s *Server) longer(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		l := &long{w: w, limit: s.limits.WriteTime, every: s.limits.SignEvery,
			tells: r.Header.Get(api.ProgressHeader) != "" && r.ProtoAtLeast(1, 1)}
		l.next = time.Now().Add(l.every)
		return h(w, r.WithContext(context.WithValue(r.Context(), longKey{}, l)))
	}
}

// longOf returns what tells of a request; nil, which tells nothing, for one that is not
// [Server.longer].
func longOf(ctx context.Context) *long {
	l, _ := ctx.Value(longKey{}).(*long)
	return l
}

// sign tells how far the request is, when it is time to.
func (l *long) sign(text func() string) {
	if l == nil {
		return
	}
	now := time.Now()
	if now.Before(l.next) {
		return
	}
	l.next = now.Add(l.every)
	l.prolong()
	if l.tells {
		l.w.Header().Set(api.ProgressHeader, text())
		l.w.WriteHeader(http.StatusProcessing)
		l.w.Header().Del(api.ProgressHeader)
	}
}

// prolong gives the answer all of its time from now on.
func (l *long) prolong() {
	if l != nil {
		_ = http.NewResponseController(l.w).SetWriteDeadline(time.Now().Add(l.limit)) // a writer of tests has none
	}
}

// Progress is for [change.Question].
func (l *long) Progress(done, all int) {
	l.sign(func() string { return fmt.Sprintf("%d/%d", done, all) })
}

// Turn waits until a slot is free, and reports whether it is taken.
func (l *long) Turn(ctx context.Context, slot chan<- struct{}) bool {
	select {
	case slot <- struct{}{}:
		return true
	default:
	}
	every := time.Hour // nobody is told
	if l != nil {
		every = l.every
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case slot <- struct{}{}:
			return true
		case <-tick.C:
			l.sign(func() string { return api.ProgressWaits })
		case <-ctx.Done():
			return false
		}
	}
}

// bulkyBody is how large a body is, in bytes, of which one at a time is decoded: the resources take
// ten times as much.
const bulkyBody = 1 << 20

// bulky waits until a body may be decoded, and returns what is to be called when its resources are
// not needed any more.
func (s *Server) bulky(r *http.Request, body []byte) (release func(), e *api.Error) {
	if len(body) < bulkyBody {
		return func() {}, nil
	}
	if !longOf(r.Context()).Turn(r.Context(), s.decoding) {
		return nil, write.Gone(r.Context())
	}
	return func() { <-s.decoding }, nil
}
