package events

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Options configures a [Server]. All fields but Watch are required.
type Options struct {
	Hub      *Hub
	Instance string
	Started  time.Time
	Revision func() uint64 // of the store
	// Problems returns the problems of the whole status, and whether a change is about to affect
	// them. It may take a second.
	Problems func(context.Context) (list []api.Problem, pending bool)
	// Watch are the signals of changes that may affect the problems, with functions that end them.
	Watch    [2]func() (changed <-chan struct{}, stop func())
	Stopping <-chan struct{} // closed when the agent stops
}

// Server serves streams of events. Create it with New.
type Server struct {
	o Options

	mu       sync.Mutex
	watching int // guarded by mu, like watcher: readers of problems
	watcher  *watcher
}

// New returns a server.
func New(o Options) *Server { return &Server{o: o} }

// Sender is the sender of a request for events. Its functions decide by the present roles.
type Sender struct {
	May func(verb string, k resource.Key) bool
	// Valid returns why the sender may not read events any more, or "". It is called regularly.
	Valid   func() string
	Expires time.Time // of its token; zero: never
}

// Times of a stream.
const (
	pause     = 50 * time.Millisecond // between two writes, so that a burst of events is few writes
	beat      = 15 * time.Second      // between signs of life
	writeTime = 10 * time.Second      // for one write
)

// maxBuffer is the size of a buffer that a stream keeps, in bytes.
const maxBuffer = 64 << 10

// filter selects events.
type filter struct {
	types []string // empty: all
	mesh  string   // "": all
}

// filterOf returns the filter of a request, whose parameters are valid: ?types=&mesh=.
func filterOf(r *http.Request) (f filter) {
	q := r.URL.Query()
	f.types = slices.DeleteFunc(strings.Split(q.Get("types"), ","), func(t string) bool { return t == "" })
	f.mesh = q.Get("mesh")
	return f
}

func (f *filter) has(name string) bool { return len(f.types) == 0 || slices.Contains(f.types, name) }

func (f *filter) selects(e *event) bool {
	return f.has(e.name) && (f.mesh == "" || f.mesh == access.ActionOn(e.verb, e.key).Mesh)
}

// may reports whether the sender may see an event.
func (x *Sender) may(e *event) bool {
	p, ok := e.data.(*api.ProblemEvent)
	if !ok {
		return x.May(e.verb, e.key)
	}
	whole := x.May(access.VerbInspect, resource.Key{})
	v := status.View{Whole: whole, Visible: func(k resource.Key) bool { return x.May(access.VerbInspect, k) }}
	return (whole || !status.NeedsWhole(&p.Problem)) && v.Shows(&p.Problem)
}

// Serve is GET /v1/events?types=&mesh=. It answers until the client disconnects, the sender loses
// its permission, or the agent stops.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, x Sender) {
	f := filterOf(r)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // of reverse proxies
	if r.Method == http.MethodHead {
		return
	}
	next := s.o.Hub.join()
	defer s.o.Hub.leave()
	st := &stream{s: s, f: f, x: x, next: next, w: w, control: http.NewResponseController(w)}
	if f.has(api.EventProblem) {
		ready, release := s.watchProblems()
		defer release()
		// Problems that a reader finds after hello must be in the first list, or follow as events.
		select {
		case <-ready:
		case <-time.After(firstTime):
			st.late = ready
		case <-r.Context().Done():
			return
		case <-s.o.Stopping:
		}
	}
	st.run(r.Context())
}

// stream is the answer to one reader.
type stream struct {
	s       *Server
	f       filter
	x       Sender
	next    uint64          // number of its next event
	late    <-chan struct{} // closed when the first list of problems is known, if hello did not wait
	w       http.ResponseWriter
	control *http.ResponseController
	list    []*event
	buf     bytes.Buffer
}

// run writes events until the stream ends.
func (st *stream) run(ctx context.Context) {
	o := &st.s.o
	// The timeouts of a connection are for whole requests.
	_ = st.control.SetReadDeadline(time.Time{}) // unsupported by test writers
	st.add(api.EventHello, &api.Hello{Instance: o.Instance, Started: o.Started, Revision: o.Revision()})
	if !st.send() {
		return
	}
	beats := time.NewTicker(beat)
	defer beats.Stop()
	var expires <-chan time.Time
	if t := st.x.Expires; !t.IsZero() {
		timer := time.NewTimer(time.Until(t))
		defer timer.Stop()
		expires = timer.C
	}
	for {
		changed := st.collect()
		if st.buf.Len() > 0 {
			if !st.send() {
				return
			}
			changed = nil
		}
		var more <-chan time.Time
		if changed == nil {
			more = time.After(pause)
		}
		select {
		case <-changed:
		case <-more:
		case <-st.late:
			st.late = nil
			st.add(api.EventLost, &api.Lost{})
		case <-beats.C:
			if why := st.x.Valid(); why != "" {
				st.end(why)
				return
			}
			st.buf.WriteString(": alive\n\n")
		case <-expires:
			st.end("the token has expired; get a new one")
			return
		case <-o.Stopping:
			st.end("the agent is shutting down; connect again when it runs")
			return
		case <-ctx.Done():
			return
		}
	}
}

// collect adds the next events that the reader gets. If there are none, it returns a channel that
// is closed at the next event.
func (st *stream) collect() (changed <-chan struct{}) {
	var lost int
	st.list, st.next, lost, changed = st.s.o.Hub.since(st.next, st.list[:0])
	if lost > 0 {
		st.add(api.EventLost, &api.Lost{Events: lost})
	}
	for _, e := range st.list {
		if st.f.selects(e) && st.x.may(e) {
			st.buf.Write(e.bytes())
		}
	}
	clear(st.list) // releases the events
	return changed
}

func (st *stream) add(name string, data any) { st.buf.Write(encode("", name, data)) }

func (st *stream) end(reason string) {
	st.add(api.EventEnd, &api.End{Reason: reason})
	st.send()
}

// send writes what was added. It returns false if the client has disconnected or does not read.
func (st *stream) send() bool {
	_ = st.control.SetWriteDeadline(time.Now().Add(writeTime)) // unsupported by test writers
	_, err := st.w.Write(st.buf.Bytes())
	if st.buf.Reset(); st.buf.Cap() > maxBuffer {
		st.buf = bytes.Buffer{}
	}
	if err == nil {
		err = st.control.Flush()
	}
	return err == nil
}
