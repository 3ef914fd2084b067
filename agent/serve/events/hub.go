// Package events serves GET /v1/events: changes of resources, connections and answers of proxies,
// and problems, as server-sent events. It guarantees:
//
//   - Without a reader, an event costs one atomic load, and nothing is computed or stored.
//   - Sources never wait for readers. All readers share one bounded list of events, and each event
//     is encoded once. A reader that is too slow gets the event lost instead of what it missed.
//   - A reader gets only what its sender may list or inspect at that moment. Its stream ends when
//     its token or its permission does.
//   - An event of a change follows the change: a reader that asks the API after it sees the change.
package events

import (
	"bytes"
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxStored is the number of events that a reader may be behind.
const maxStored = 4096

// maxBatch is the number of events in one write.
const maxBatch = 512

// event is one event for all readers.
type event struct {
	number uint64
	name   string
	verb   string       // that a reader needs for key; "" for an event of all readers
	key    resource.Key // what the event is about
	data   any          // *api.ProblemEvent and others

	encode sync.Once
	text   []byte
}

// bytes returns the event as the text of a stream.
func (e *event) bytes() []byte {
	e.encode.Do(func() {
		e.text = encode(strconv.FormatUint(e.number, 10), e.name, e.data)
	})
	return e.text
}

// encode returns an event in the format of a stream. JSON has no line breaks.
func encode(id, name string, data any) []byte {
	var b bytes.Buffer
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	b.WriteString("event: " + name + "\ndata: ")
	body, err := json.Marshal(data)
	if err != nil { // no event has a value that JSON cannot express
		body = []byte("null")
	}
	b.Write(body)
	b.WriteString("\n\n")
	return b.Bytes()
}

// Hub distributes events to readers. The zero value is ready to use. It is safe for concurrent use.
type Hub struct {
	readers atomic.Int64

	mu      sync.Mutex
	stored  []*event      // a ring of maxStored; nil without readers
	next    uint64        // number of the next event
	first   uint64        // number of the oldest stored event
	changed chan struct{} // closed at the next event; nil if no reader waits
}

// active reports whether there are readers.
func (h *Hub) active() bool { return h.readers.Load() > 0 }

// join adds a reader. Events from the returned number on are for it.
func (h *Hub) join() (next uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers.Add(1) == 1 {
		h.stored, h.first = make([]*event, maxStored), h.next
	}
	return h.next
}

// leave removes a reader.
func (h *Hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers.Add(-1) == 0 {
		h.stored, h.first = nil, h.next
	}
}

// publish stores events and wakes the readers.
func (h *Hub) publish(list ...*event) {
	if len(list) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stored == nil {
		return // the last reader has left
	}
	for _, e := range list {
		e.number = h.next
		h.stored[h.next%maxStored] = e
		h.next++
	}
	if h.next-h.first > maxStored {
		h.first = h.next - maxStored
	}
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// since appends up to maxBatch events from a number on to a list. lost is the number of events that
// are not stored any more. If there are none, changed is closed at the next event.
func (h *Hub) since(from uint64, list []*event) (out []*event, next uint64, lost int, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if from < h.first {
		lost = int(h.first - from) // #nosec G115 -- a count of events
		from = h.first
	}
	for ; from < h.next && len(list) < maxBatch; from++ {
		list = append(list, h.stored[from%maxStored])
	}
	if len(list) == 0 && lost == 0 {
		if h.changed == nil {
			h.changed = make(chan struct{})
		}
		changed = h.changed
	}
	return list, from, lost, changed
}
