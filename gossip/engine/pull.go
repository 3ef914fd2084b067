package engine

import (
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/bucket"
)

// Parameters of pulls.
const (
	pullFast    = 50 * time.Millisecond  // for a packet; longer for distant peers
	pullTimeout = 500 * time.Millisecond // for a stream, which is used after pullPackets packets
	pullSlow    = 2 * time.Second        // for a large request
	pullTries   = 6                      // attempts per version
	pullPackets = 3
	pullSlots   = 128 // versions per request
	pullsEach   = 2   // pending requests per peer
	pullsAll    = 8
	askScan     = 1024 // wants examined per step
	bigBurst    = 400  // number of wants that suggests the peer has more than it announced
	maxWants    = 8192
	maxSources  = 4
	answerChunk = 256 << 10 // bytes per message of a reply
	answerLimit = 1 << 20   // bytes per reply; the rest is requested again
)

// want is a version that a peer has and this node needs.
type want struct {
	head    Head
	sources []string
	tries   int
	stream  bool   // request it over a stream
	request uint64 // pending request; 0: none
}

// request is a pending request.
type request struct {
	to    string
	slots []Slot
	until time.Time
	left  int // entries that the replies may still contain
}

type wants struct {
	bySlot   map[Slot]*want
	queue    []Slot // wanted and not requested yet, in order
	requests map[uint64]*request
	last     uint64
	burst    int    // wants since the last time there were none
	compared bool   // some wants come from a comparison
	more     string // a peer with more than it announced; the next comparison is with it
}

func (w *wants) init() {
	w.bySlot, w.requests = map[Slot]*want{}, map[uint64]*request{}
}

// due returns when the next request times out, or zero.
func (w *wants) due() (at time.Time) {
	for _, r := range w.requests {
		if at.IsZero() || r.until.Before(at) {
			at = r.until
		}
	}
	return at
}

// dropKnown removes a want if its version or a later one is present.
func (e *Engine) dropKnown(s Slot) {
	if w := e.wants.bySlot[s]; w != nil && e.known(w.head) {
		delete(e.wants.bySlot, s)
	}
}

// dropPeer times out all requests to a peer.
func (w *wants) dropPeer(member string) {
	for _, r := range w.requests {
		if r.to == member {
			r.until = time.Time{}
		}
	}
	if w.more == member {
		w.more = ""
	}
}

// wantHeads adds the unknown heads of a peer to the wants. With stream, the requests use streams.
func (e *Engine) wantHeads(heads []Head, from string, stream bool) {
	for _, h := range heads {
		if e.known(h) {
			continue
		}
		w := e.wants.bySlot[h.Slot]
		switch {
		case w == nil && len(e.wants.bySlot) >= maxWants:
			e.count("want dropped: too many")
			e.wants.more = from
		case w == nil:
			e.wants.bySlot[h.Slot] = &want{head: h, sources: []string{from}, stream: stream}
			e.wants.queue = append(e.wants.queue, h.Slot)
			e.wants.burst++
		case w.head.Version.Less(h.Version):
			w.head, w.sources, w.tries, w.stream = h, []string{from}, 0, stream
		case w.head == h && len(w.sources) < maxSources && !slices.Contains(w.sources, from):
			w.sources, w.stream = append(w.sources, from), w.stream || stream
		}
	}
}

// ask sends requests for wanted versions, up to the limit of pending requests.
func (e *Engine) ask() {
	if len(e.wants.queue) > 0 && len(e.wants.requests) < pullsAll {
		byPeer := map[string][]Slot{}
		var order []string
		left := e.wants.queue[:0]
		for i, slot := range e.wants.queue {
			w := e.wants.bySlot[slot]
			if w == nil || w.request != 0 {
				continue
			}
			if i >= askScan {
				left = append(left, e.wants.queue[i:]...)
				break
			}
			switch from := e.source(w, byPeer); {
			case from == "" && len(w.sources) == 0:
				delete(e.wants.bySlot, slot)
			case from == "":
				left = append(left, slot)
			default:
				if byPeer[from] == nil {
					order = append(order, from)
				}
				byPeer[from] = append(byPeer[from], slot)
			}
		}
		e.wants.queue = left
		for _, from := range order {
			e.request(from, byPeer[from])
		}
	}
	if e.wants.more != "" && len(e.wants.bySlot) < maxWants/2 && len(e.wants.requests) == 0 {
		if p := e.peers[e.wants.more]; p != nil {
			p.tries, p.synced = 0, time.Time{}
			e.wants.more = ""
			e.startSync(p, nil)
		}
		e.wants.more = ""
	}
}

// source selects a peer that has a version and may receive a request. It drops sources that are
// gone.
func (e *Engine) source(w *want, chosen map[string][]Slot) string {
	w.sources = slices.DeleteFunc(w.sources, func(m string) bool { return e.peers[m] == nil })
	for _, m := range w.sources {
		if n := len(chosen[m]); n > 0 && n < pullSlots {
			return m
		} else if n == 0 && e.peers[m].pulls < pullsEach && len(e.wants.requests)+len(chosen) < pullsAll {
			return m
		}
	}
	return ""
}

func (e *Engine) request(to string, slots []Slot) {
	e.wants.last++
	n := e.wants.last
	timeout, viaStream := max(pullFast, 3*e.peers[to].rtt), false
	for _, s := range slots {
		viaStream = viaStream || e.wants.bySlot[s].tries >= pullPackets || e.wants.bySlot[s].stream
	}
	if viaStream {
		timeout = pullTimeout
	}
	if len(slots) > 8 {
		timeout = pullSlow
	}
	e.wants.requests[n] = &request{to, slots, e.now.Add(timeout), 2 * len(slots)}
	e.peers[to].pulls++
	for _, s := range slots {
		e.wants.bySlot[s].request = n
	}
	e.send(to, message{Want: slots, Request: n, Stream: viaStream})
}

// endRequest removes a request and queues its missing versions for another source. lacking means
// that the reply is complete.
func (e *Engine) endRequest(n uint64, lacking bool) {
	r := e.wants.requests[n]
	delete(e.wants.requests, n)
	if p := e.peers[r.to]; p != nil {
		p.pulls--
	}
	for _, s := range r.slots {
		w := e.wants.bySlot[s]
		if w == nil || w.request != n {
			continue
		}
		w.request = 0
		w.tries++
		if lacking || len(w.sources) > 1 && w.tries > 1 {
			w.sources = slices.DeleteFunc(w.sources, func(m string) bool { return m == r.to })
		}
		if w.tries >= pullTries || len(w.sources) == 0 {
			delete(e.wants.bySlot, s)
			e.count("want given up")
			continue
		}
		e.wants.queue = append(e.wants.queue, s)
	}
	if len(e.wants.bySlot) == 0 {
		switch {
		case e.wants.burst >= bigBurst:
			e.wants.more = r.to
		case e.wants.compared && lacking:
			e.agree() // with constant changes, roots are rarely equal
		}
		e.wants.burst, e.wants.compared = 0, false
	}
}

func (e *Engine) expireWants() {
	var over []uint64
	for n, r := range e.wants.requests {
		if !r.until.After(e.now) {
			over = append(over, n)
		}
	}
	slices.Sort(over)
	for _, n := range over {
		e.endRequest(n, false)
		e.count("pull timed out")
	}
}

// receive processes a message.
func (e *Engine) receive(data []byte) {
	m, err := decodeMessage(data)
	if err != nil {
		e.count("refused: message malformed")
		return
	}
	asked := false
	if r := e.wants.requests[m.Reply]; m.Reply != 0 && r != nil && r.to == m.From {
		asked = true
		r.until = e.now.Add(pullSlow)
		r.left -= len(m.Records) + len(m.Manifests)
	}
	if n := len(m.Records) + len(m.Manifests); n > 0 && (!asked || e.wants.requests[m.Reply].left < 0) &&
		!e.mayPush(m.From, n) {
		e.count("refused: too many from a peer")
		return
	}
	m.asked = asked
	e.receiveRecords(m)
	e.receiveManifests(m)
	e.wantHeads(m.Have, m.From, m.Stream)
	if asked && m.Last {
		e.endRequest(m.Reply, true)
	}
	p := e.peers[m.From]
	if p == nil {
		return // its address and membership are unknown
	}
	if m.Root != nil {
		e.checked(p, m)
	}
	if len(m.Want)+len(m.WantBody) > 0 {
		e.answer(m)
	}
	if len(m.Sums)+len(m.Leaves) > 0 {
		e.compare(m)
	}
}

// mayPush reports whether the rate limit of a peer allows n unsolicited entries.
func (e *Engine) mayPush(from string, n int) bool {
	p := e.peers[from]
	if p == nil {
		p = e.peers[""] // nodes that are not members yet share one limit
		if p == nil {
			p = &peer{bucket: bucket.New(peerRate, peerBurst, e.now)}
			e.peers[""] = p
		}
	}
	return p.bucket.Take(e.now, float64(n))
}

// answer sends the requested entries and bodies that this node has.
func (e *Engine) answer(q *message) {
	out := message{Reply: q.Request, Stream: q.Stream}
	size, total := 0, 0
	fits := func(n int) bool {
		if total += n; total > answerLimit && total != n {
			return false
		}
		if size+n > answerChunk && size > 0 {
			e.send(q.From, out)
			out, size = message{Reply: q.Request, Stream: q.Stream}, 0
		}
		size += n + 4
		return true
	}
	for _, s := range q.Want {
		if r := e.aside(s); r != nil && fits(len(r.Encoded())) {
			out.Records = append(out.Records, r)
		}
		switch en := e.entries[s]; {
		case en == nil:
		case en.record != nil && fits(len(en.record.Encoded())):
			out.Records = append(out.Records, en.record)
		case en.manifest != nil && fits(len(en.manifest.Encoded())):
			out.Manifests = append(out.Manifests, en.manifest)
		}
	}
	for _, h := range q.WantBody {
		b := e.bodies[h]
		if b == nil {
			continue
		}
		if !fits(len(b.data)) {
			break
		}
		out.Bodies = append(out.Bodies, b.data)
	}
	out.Last = q.Request != 0
	if size > 0 || out.Last {
		e.send(q.From, out)
	}
}
