package engine

import (
	"encoding/binary"
	"slices"
	"time"
)

// peer is a member that is up.
type peer struct {
	name    string
	node    NodeID
	clock   time.Duration // how far its clock is ahead
	clockAt time.Time     // zero: not known
	rtt     time.Duration // of the last probe
	root    Digest        // that it had then
	heard   time.Time     // zero: it was not probed yet
	bucket  bucket        // of what is taken unasked
	pulls   int           // requests that are under way

	synced time.Time // when the last comparison was started
	roots  [2]Digest // own and its root then
	tries  int       // comparisons with the same two roots
}

// rumor is a version that is still announced.
type rumor struct {
	head   Head
	rounds int
}

type rumors struct {
	heads map[Slot]*rumor
	queue []Slot
	at    time.Time
}

func (e *Engine) peerUp(ev PeerUp) {
	if ev.Member == e.cfg.Member {
		return
	}
	p := e.peers[ev.Member]
	if p == nil {
		p = &peer{name: ev.Member, bucket: bucket{rate: peerRate, burst: peerBurst, level: peerBurst, at: e.now}}
		e.peers[ev.Member] = p
		e.alive = append(e.alive, ev.Member)
		e.live.memberUp(ev.Node, e.now)
	}
	p.node = ev.Node
	p.roots, p.tries, p.synced = [2]Digest{}, 0, time.Time{}
	if !e.met || e.now.Sub(e.agreed) > 10*time.Second {
		// This node has just come, or has been cut off. The first peers may not know it yet and not
		// answer, so it is tried some more times.
		e.startSync(p, nil)
		if e.firstPeer.IsZero() {
			e.firstPeer = e.now
		}
		if e.joinTries == 0 {
			e.joinTries, e.joinAt = joinTries, e.now.Add(joinEvery)
		}
	}
}

func (e *Engine) peerDown(ev PeerDown) {
	p := e.peers[ev.Member]
	if p == nil {
		return
	}
	delete(e.peers, ev.Member)
	e.alive = slices.DeleteFunc(e.alive, func(m string) bool { return m == ev.Member })
	e.wants.lose(ev.Member)
	e.live.memberDown(p.node, e.now)
}

// pick returns up to n members that are up, none of them twice and not the one to leave out.
func (e *Engine) pick(n int, without string) []string {
	var out []string
	if len(e.alive) <= 2*n {
		pool := slices.DeleteFunc(slices.Clone(e.alive), func(m string) bool { return m == without })
		for i := range pool {
			j := i + e.cfg.Random(len(pool)-i)
			pool[i], pool[j] = pool[j], pool[i]
		}
		return pool[:min(n, len(pool))]
	}
	for range 8 * n { // few draws are in vain: there are more than twice as many
		m := e.alive[e.cfg.Random(len(e.alive))]
		if m != without && !slices.Contains(out, m) && len(out) < n {
			out = append(out, m)
		}
	}
	return out
}

// spread passes on what is new since the last step: what is small at once, in whole; the rest is
// announced. All of it is announced some more times, for those that the first copies miss.
func (e *Engine) spread() {
	if len(e.news) == 0 {
		return
	}
	list := e.news
	e.news = nil
	if since := e.now.Sub(e.firstPeer); !e.met && since >= 0 && since < catchUp {
		// This node has just come: what is new to it is not new to others.
		list = slices.DeleteFunc(list, func(n news) bool { return n.from != "" })
	}
	push, announce := message{}, message{}
	without := ""
	for i, n := range list {
		if i == 0 {
			without = n.from
		} else if without != n.from {
			without = ""
		}
		en := e.entries[n.slot]
		if en == nil {
			continue
		}
		e.rumor(en.head)
		if !e.addSmall(&push, en) {
			announce.Have = append(announce.Have, en.head)
		}
	}
	if len(push.Records)+len(push.Manifests) > 0 {
		for _, to := range e.pick(pushCopies, without) {
			e.sendSplit(to, push)
		}
	}
	if len(announce.Have) > 0 {
		for _, to := range e.pick(announceCopies, without) {
			e.sendHeads(to, announce.Have)
		}
	}
}

// room is how many bytes of entries fit a packet.
func (e *Engine) room() int { return MaxPacket - len(e.cfg.Member) - messageRest }

// messageRest is what a message has beside the name of its sender and entries.
const messageRest = 32

// addSmall adds an entry that fits a packet, with the bodies that a manifest needs.
func (e *Engine) addSmall(m *message, en *entry) bool {
	size := 0
	var bodies [][]byte
	if en.record != nil {
		size = len(en.record.raw)
	} else {
		size = len(en.manifest.raw)
		for _, x := range en.manifest.Entries {
			b := e.bodies[x.Hash].data
			bodies = append(bodies, b)
			size += len(b) + 4
		}
	}
	if size > e.room() || !e.push.take(e.now, 1) {
		return false
	}
	if en.record != nil {
		m.Records = append(m.Records, en.record)
	} else {
		m.Manifests = append(m.Manifests, en.manifest)
		m.Bodies = append(m.Bodies, bodies...)
	}
	return true
}

// sendSplit sends what are small entries, in as few packets as they fit.
func (e *Engine) sendSplit(to string, all message) {
	var m message
	size := 0
	flush := func() {
		if size > 0 {
			e.send(to, m)
		}
		m, size = message{}, 0
	}
	for _, r := range all.Records {
		if size+len(r.raw) > e.room() {
			flush()
		}
		m.Records = append(m.Records, r)
		size += len(r.raw) + 4
	}
	for _, x := range all.Manifests {
		n := len(x.raw)
		for _, en := range x.Entries {
			n += len(e.bodies[en.Hash].data) + 4
		}
		if size+n > e.room() {
			flush()
		}
		m.Manifests = append(m.Manifests, x)
		for _, en := range x.Entries {
			m.Bodies = append(m.Bodies, e.bodies[en.Hash].data)
		}
		size += n + 4
	}
	flush()
}

// headsEach is how many heads a message carries.
const headsEach = 4096

func (e *Engine) sendHeads(to string, heads []Head) {
	for part := range slices.Chunk(heads, headsEach) {
		e.send(to, message{Have: part})
	}
}

// rumor begins to announce a version.
func (e *Engine) rumor(h Head) {
	if len(e.alive) == 0 {
		return
	}
	if r := e.rumors.heads[h.Slot]; r != nil {
		r.head, r.rounds = h, rumorRounds
		return
	}
	if len(e.rumors.queue) >= maxRumors {
		e.count("rumor dropped: too many")
		return
	}
	if len(e.rumors.queue) == 0 {
		e.rumors.at = e.now.Add(rumorInterval)
	}
	e.rumors.heads[h.Slot] = &rumor{h, rumorRounds}
	e.rumors.queue = append(e.rumors.queue, h.Slot)
}

// rumorRound announces what is new to a few peers. Much at a time goes to fewer: each of them
// passes it on.
func (e *Engine) rumorRound() {
	if len(e.rumors.queue) == 0 {
		return
	}
	e.rumors.at = e.now.Add(rumorInterval)
	var heads []Head
	var left []Slot
	cost := 1
	if len(e.rumors.queue) > 200 {
		cost = 2
	}
	for _, slot := range e.rumors.queue {
		r := e.rumors.heads[slot]
		if len(heads) < headsEach {
			heads = append(heads, r.head)
			r.rounds -= cost
		}
		if r.rounds > 0 {
			left = append(left, slot)
		} else {
			delete(e.rumors.heads, slot)
		}
	}
	e.rumors.queue = left
	for _, to := range e.pick(rumorCopies, "") {
		e.sendHeads(to, heads)
	}
}

// AckPayload is what an answer to a probe carries: the root of all entries, and the own clock.
func AckPayload(root Digest, now time.Time) []byte {
	b := []byte{protocolVersion}
	b = binary.BigEndian.AppendUint64(b, root[0])
	b = binary.BigEndian.AppendUint64(b, root[1])
	return binary.BigEndian.AppendUint64(b, uint64(max(now.UnixMilli(), 0)))
}

// AckSize is the length of AckPayload. What follows it in an answer is of others.
const AckSize = 1 + 16 + 8

// Root returns the sum of all entries.
func (e *Engine) Root() Digest { return e.tree.sum }

func (e *Engine) acked(ev Acked) {
	p := e.peers[ev.Member]
	if p == nil || len(ev.Payload) < AckSize || ev.Payload[0] != protocolVersion {
		return
	}
	root := Digest{binary.BigEndian.Uint64(ev.Payload[1:]), binary.BigEndian.Uint64(ev.Payload[9:])}
	clock := time.UnixMilli(int64(binary.BigEndian.Uint64(ev.Payload[17:]) & (1<<48 - 1)))
	p.clock, p.clockAt = clock.Sub(e.now.Add(-ev.RTT/2)), e.now
	p.root, p.heard = root, e.now
	p.rtt = min(max(ev.RTT, 0), time.Second)
	e.skew = e.medianClock()
	if root == e.tree.sum {
		e.agree()
		return
	}
	if since := e.now.Sub(e.changed); since >= 0 && since < settleTime && !e.settling {
		e.settling = true // what is new here is on its way
		return
	}
	e.settling = false
	e.startSync(p, &root)
}

// agree notes that all that a peer has is here.
func (e *Engine) agree() {
	e.agreed, e.met, e.settling, e.joinTries = e.judged(), true, false, 0
}

// medianClock is how far the clocks of peers are ahead of the own one, by most of them.
func (e *Engine) medianClock() time.Duration {
	var all []time.Duration
	for _, m := range e.alive {
		if p := e.peers[m]; !p.clockAt.IsZero() && e.now.Sub(p.clockAt) < 2*time.Minute {
			all = append(all, p.clock)
		}
	}
	if len(all) < 3 {
		return 0
	}
	slices.Sort(all)
	if m := all[len(all)/2]; m > 2*time.Second || m < -2*time.Second {
		return m
	}
	return 0
}

// clockMoved forgets what was measured with a clock that has been set since.
func (e *Engine) clockMoved(by time.Duration) {
	e.skew = 0
	e.unsure = e.now.Add(by).Add(unsureFor)
	e.live.shift(by)
	for _, p := range e.peers {
		p.clockAt = time.Time{}
	}
	e.wants.restart(e.now.Add(by))
	e.rumors.at, e.joinAt = e.now.Add(by), e.now.Add(by)
}
