package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// long is a request that may take long. Signs of life extend its deadline.
type long struct {
	w     http.ResponseWriter
	limit time.Duration // time to write after the last sign of life
	every time.Duration // interval of signs of life
	tells bool
	next  time.Time
}

type longKey struct{}

// longer serves requests that may take long. The client gets signs of life, and the work stops if
// it disconnects, because the context of the request ends.
func (s *Server) longer(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		l := &long{w: w, limit: s.limits.WriteTime, every: s.limits.SignEvery,
			tells: r.Header.Get(api.ProgressHeader) != "" && r.ProtoAtLeast(1, 1)}
		l.next = time.Now().Add(l.every)
		return h(w, r.WithContext(context.WithValue(r.Context(), longKey{}, l)))
	}
}

// longOf returns the [long] of a request, or nil if it is not served by [Server.longer].
func longOf(ctx context.Context) *long {
	l, _ := ctx.Value(longKey{}).(*long)
	return l
}

// sign sends the progress at each interval.
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

// prolong resets the deadline of the answer.
func (l *long) prolong() {
	if l != nil {
		// unsupported by test writers
		_ = http.NewResponseController(l.w).SetWriteDeadline(time.Now().Add(l.limit))
	}
}

// Progress implements the progress of [change.Question].
func (l *long) Progress(done, all int) {
	l.sign(func() string { return fmt.Sprintf("%d/%d", done, all) })
}

// Turn waits for a free slot, and reports whether it was acquired.
func (l *long) Turn(ctx context.Context, slot chan<- struct{}) bool {
	select {
	case slot <- struct{}{}:
		return true
	default:
	}
	every := time.Hour // no signs of life
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

// bulkyBody is the size in bytes above which only one body is decoded at a time. The decoded
// resources take ten times as much memory.
const bulkyBody = 1 << 20

// bulky waits until a body may be decoded. Call release when its resources are no longer needed.
func (s *Server) bulky(r *http.Request, body []byte) (release func(), e *api.Error) {
	if len(body) < bulkyBody {
		return func() {}, nil
	}
	if !longOf(r.Context()).Turn(r.Context(), s.decoding) {
		return nil, write.Gone(r.Context())
	}
	return func() { <-s.decoding }, nil
}
