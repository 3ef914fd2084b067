package engine

import (
	"slices"
	"time"
)

// Figures of pulls.
const (
	pullFast    = 50 * time.Millisecond  // for a packet, and more where the peer is far
	pullTimeout = 500 * time.Millisecond // for a stream, which is taken after pullPackets packets
	pullSlow    = 2 * time.Second        // for a large one
	pullTries   = 6                      // before a version is given up
	pullPackets = 3
	pullSlots   = 128 // asked for in one request
	pullsEach   = 2   // requests under way to one peer
	pullsAll    = 8
	askScan     = 1024 // wants that are looked at in one step
	bigBurst    = 400  // wants after which a peer probably has more than it could say
	maxWants    = 8192
	maxSources  = 4
	answerChunk = 256 << 10 // bytes of one message of an answer
	answerLimit = 1 << 20   // bytes of an answer; what is left is asked for again
)

// want is a version that a peer has and this node lacks.
type want struct {
	head    Head
	sources []string
	tries   int
	request uint64 // under way; 0: not asked for
}

// request is a question that is under way.
type request struct {
	to    string
	slots []Slot
	until time.Time
}

type wants struct {
	bySlot   map[Slot]*want
	queue    []Slot // wanted and not asked for, in order
	requests map[uint64]*request
	last     uint64
	burst    int    // wants since there were none
	compared bool   // some of them come from a comparison
	more     string // a peer that has more than it could say; it is compared with again
}

func (w *wants) init() {
	w.bySlot, w.requests = map[Slot]*want{}, map[uint64]*request{}
}

// due returns when a request times out, zero without any.
func (w *wants) due(now time.Time) (at time.Time) {
	for _, r := range w.requests {
		if at.IsZero() || r.until.Before(at) {
			at = r.until
		}
	}
	return at
}

// restart gives all requests their time anew: the clock was set.
func (w *wants) restart(now time.Time) {
	for _, r := range w.requests {
		r.until = now.Add(pullTimeout)
	}
}

// gotten ends a want if its version, or a later one, is here.
func (e *Engine) gotten(s Slot) {
	if w := e.wants.bySlot[s]; w != nil && e.known(w.head) {
		delete(e.wants.bySlot, s)
	}
}

// lose forgets a peer.
func (w *wants) lose(member string) {
	for _, r := range w.requests {
		if r.to == member {
			r.until = time.Time{}
		}
	}
	if w.more == member {
		w.more = ""
	}
}

// wantHeads notes which of the heads of a peer are wanted.
func (e *Engine) wantHeads(heads []Head, from string) {
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
			e.wants.bySlot[h.Slot] = &want{head: h, sources: []string{from}}
			e.wants.queue = append(e.wants.queue, h.Slot)
			e.wants.burst++
		case w.head.Version.Less(h.Version):
			w.head, w.sources, w.tries = h, []string{from}, 0
		case w.head == h && len(w.sources) < maxSources && !slices.Contains(w.sources, from):
			w.sources = append(w.sources, from)
		}
	}
}

// ask sends requests for what is wanted, as many as may be under way.
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

// source picks a peer that has a version and may be asked, and forgets those that are gone.
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
	timeout, again := max(pullFast, 3*e.peers[to].rtt), false
	for _, s := range slots {
		again = again || e.wants.bySlot[s].tries >= pullPackets
	}
	if again {
		timeout = pullTimeout
	}
	if len(slots) > 8 {
		timeout = pullSlow
	}
	e.wants.requests[n] = &request{to, slots, e.now.Add(timeout)}
	e.peers[to].pulls++
	for _, s := range slots {
		e.wants.bySlot[s].request = n
	}
	e.send(to, message{Want: slots, Request: n, Stream: again})
}

// endRequest takes back what was not answered, to ask somebody else.
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
			e.agree() // where changes never cease, roots are hardly ever equal
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

// receive takes a message.
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
	}
	if n := len(m.Records) + len(m.Manifests); n > 0 && !asked && !e.mayPush(m.From, n) {
		e.count("refused: too many from a peer")
		return
	}
	e.receiveRecords(m)
	e.receiveManifests(m)
	e.wantHeads(m.Have, m.From)
	if asked && m.Last {
		e.endRequest(m.Reply, true)
	}
	if e.peers[m.From] == nil {
		return // it is not known where it can be reached, or whether it is a member at all
	}
	if len(m.Want)+len(m.WantBody) > 0 {
		e.answer(m)
	}
	if len(m.Sums)+len(m.Leaves) > 0 {
		e.compare(m)
	}
}

// mayPush reports whether a peer may bring entries that nobody has asked for.
func (e *Engine) mayPush(from string, n int) bool {
	p := e.peers[from]
	if p == nil {
		p = e.peers[""] // those that are not members yet share one
		if p == nil {
			p = &peer{bucket: bucket{rate: peerRate, burst: peerBurst, level: peerBurst, at: e.now}}
			e.peers[""] = p
		}
	}
	return p.bucket.take(e.now, float64(n))
}

// answer sends what a peer asks for and is here.
func (e *Engine) answer(q *message) {
	out := message{Reply: q.Request, Stream: q.Stream}
	size, total := 0, 0
	room := func(n int) bool {
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
		en := e.entries[s]
		if en == nil {
			continue
		}
		if en.record != nil {
			if !room(len(en.record.raw)) {
				break
			}
			out.Records = append(out.Records, en.record)
		} else {
			if !room(len(en.manifest.raw)) {
				break
			}
			out.Manifests = append(out.Manifests, en.manifest)
		}
	}
	for _, h := range q.WantBody {
		b := e.bodies[h]
		if b == nil {
			continue
		}
		if !room(len(b.data)) {
			break
		}
		out.Bodies = append(out.Bodies, b.data)
	}
	out.Last = q.Request != 0
	if size > 0 || out.Last {
		e.send(q.From, out)
	}
}
