package web

import (
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Connections of a backend at the same time. Together they stay below the number that an agent
// accepts from one user (64), so that the user's commands still get an answer.
const (
	maxShort = 6  // of requests with an answer at once; further ones wait
	maxLong  = 56 // of streams and waits; further ones are refused
)

// bounded limits the connections of a transport.
type bounded struct {
	next        http.RoundTripper
	short, long chan struct{} // a value for each request in flight
}

func newBounded(next http.RoundTripper) *bounded {
	return &bounded{next: next, short: make(chan struct{}, maxShort), long: make(chan struct{}, maxLong)}
}

// isLong reports whether the answer to a request may take long: events, lines of logs that are
// followed, and waits.
func isLong(r *http.Request) bool {
	switch p := strings.TrimSuffix(r.URL.Path, "/"); p {
	case "/v1/events", "/v1/wait":
		return true
	default:
		return r.URL.Query().Has("follow")
	}
}

// RoundTrip implements [http.RoundTripper].
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	slots := b.short
	if isLong(r) {
		slots = b.long
		select {
		case slots <- struct{}{}:
		default:
			return nil, api.NewError(http.StatusServiceUnavailable, api.ProblemLimited, "Too many open pages",
				"%d streams are open, the most for one nearside ui; close other tabs of the page", maxLong)
		}
	} else {
		select {
		case slots <- struct{}{}:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	answer, err := b.next.RoundTrip(r)
	if err != nil {
		<-slots
		return nil, err
	}
	answer.Body = &releasing{ReadCloser: answer.Body, release: sync.OnceFunc(func() { <-slots })}
	return answer, nil
}

// releasing is a body that calls release when it is closed.
type releasing struct {
	io.ReadCloser
	release func()
}

// Close implements [io.Closer].
func (r *releasing) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}
