package rollout

import (
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// syncState is the sync status of a client. It is guarded by the mu of the proxy.
type syncState struct {
	pushedAt         time.Time              // publication of the config
	answered         uint64                 // newest revision whose config the client has answered completely
	acceptedRevision [draft.NumTypes]uint64 // newest revision of which it has accepted a type completely
	firstRevision    [draft.NumTypes]uint64 // first revision with the present list of a type

	types [draft.NumTypes]*api.TypeStatus
	// sentBy is the watch of the last response or report; nil if its stream has ended.
	sentBy [draft.NumTypes]*typeWatch
	events []api.Event // a ring of maxEvents; the oldest event is at nextEv
	nextEv int
}

// status returns the status of a type. It creates it on first use.
func (s *syncState) status(rank int) *api.TypeStatus {
	if s.types[rank] == nil {
		s.types[rank] = &api.TypeStatus{TypeURL: draft.Types[rank]}
	}
	return s.types[rank]
}

// add adds an event. The type and, unless the event has some, the resources are those of a
// response, which may be nil. It returns the event as it is stored.
func (s *syncState) add(e api.Event, t *Response) api.Event {
	if t != nil {
		e.TypeURL = draft.Types[t.w.rank]
		if e.Resources == nil {
			for _, r := range t.Send[:min(len(t.Send), maxEventNames)] {
				e.Resources = append(e.Resources, r.Name)
			}
			e.Resources = append(e.Resources, t.Removed[:min(len(t.Removed), maxEventNames-len(e.Resources))]...)
		}
	}
	e.Resources = firstNames(e.Resources, maxEventNames)
	for i, name := range e.Resources {
		e.Resources[i] = clip.PrintableText(name, maxEventName) // a client can ask for any name
	}
	if len(s.events) < maxEvents {
		s.events = append(s.events, e)
		return e
	}
	s.events[s.nextEv] = e
	s.nextEv = (s.nextEv + 1) % maxEvents
	return e
}

// history returns a copy of the events, the oldest first.
func (s *syncState) history() []api.Event {
	out := append(slices.Clone(s.events[s.nextEv:]), s.events[:s.nextEv]...)
	for i := range out {
		out[i].Resources = slices.Clone(out[i].Resources)
	}
	return out
}

// reported returns the number of resources whose versions the client reported.
func (w *typeWatch) reported() (n int) {
	for _, h := range w.over {
		if h.kind == holdsVersion {
			n++
		}
	}
	return n
}

// noteReport records how many resources a client reported at the start of a subscription. The
// caller holds the mu of the proxy.
func (n *proxy) noteReport(w *typeWatch, reported int) {
	s := n.status(w.rank)
	s.Reported, s.ReportedAt = reported, time.Time{}
	if w.confirms = reported > 0; w.confirms {
		s.ReportedAt, n.sentBy[w.rank] = n.proxies.opts.Now(), w
	}
}

// confirmReport records that the client reported exactly the resources that it should have, which
// acknowledges their version. The caller holds the mu of the proxy.
func (n *proxy) confirmReport(w *typeWatch, version string) {
	w.confirms = false
	s := n.status(w.rank)
	s.AckedVersion, s.AckedAt = version, s.ReportedAt
	n.proxies.watchers.changes.Add(1)
}

// countResources updates the number of resources that the client has of each type. It is called
// when a status is read, which is less frequent than responses. A type keeps its number while the
// subscription changes.
func (s *syncState) countResources() {
	for rank, w := range s.sentBy {
		if w != nil && !w.stream.subscribing {
			s.types[rank].Resources = w.count()
		}
	}
}

// leave forgets the watches of a stream that ends.
func (s *syncState) leave(watches *[draft.NumTypes]*typeWatch) {
	for rank, w := range s.sentBy {
		if w != nil && w == watches[rank] {
			s.sentBy[rank] = nil
		}
	}
}

// reset forgets everything about a client but its events.
func (s *syncState) reset() {
	clear(s.acceptedRevision[:])
	clear(s.types[:])
	clear(s.sentBy[:]) // their streams may still be open
}
