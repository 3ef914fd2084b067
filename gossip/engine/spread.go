package engine

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/bucket"
)

// peer is a live member.
type peer struct {
	name     string
	node     NodeID
	display  string        // its name, or its node without one
	known    time.Time     // wall time since which this node knows the name
	enrolled bool          // an operator vouches for it
	clock    time.Duration // its clock minus the local monotonic time
	rtt      time.Duration // of the last probe
	root     Digest        // reported by the last probe or check
	heard    time.Time     // zero: no probe yet
	bucket   bucket.Bucket // limits unsolicited entries
	pulls    int           // pending requests

	features uint64
	checks   checks

	synced time.Time // start of the last comparison
	roots  [2]Digest // local root and its root at that time
	tries  int       // comparisons with these roots
}

// rumor is a version that is still being announced.
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
		p = &peer{name: ev.Member, bucket: bucket.New(peerRate, peerBurst, e.now)}
		e.peers[ev.Member] = p
		e.alive = append(e.alive, ev.Member)
		e.live.MemberUp(ev.Node, e.now)
	}
	p.node, p.features = ev.Node, ev.Features
	e.meet(p, ev)
	p.roots, p.tries, p.synced = [2]Digest{}, 0, time.Time{}
	if e.now.Sub(e.agreedAt) > 10*time.Second {
		// This node has just joined, or was disconnected. The first peers may not know it yet and not
		// answer, so the comparison is repeated.
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
	e.silentDown(ev.Member)
	p := e.peers[ev.Member]
	if p == nil {
		return
	}
	delete(e.peers, ev.Member)
	e.alive = slices.DeleteFunc(e.alive, func(m string) bool { return m == ev.Member })
	e.wants.dropPeer(ev.Member)
	e.live.MemberDown(p.node, e.now)
}

// pick returns up to n different live members, without one of them.
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
	for range 8 * n { // most draws succeed: there are more than 2n members
		m := e.alive[e.cfg.Random(len(e.alive))]
		if m != without && !slices.Contains(out, m) && len(out) < n {
			out = append(out, m)
		}
	}
	return out
}

// spread sends versions that are new since the last step. Small entries are sent in full at once,
// others are announced. All are announced in later rounds too, for nodes missed by the first
// copies.
func (e *Engine) spread() {
	if len(e.news) == 0 {
		return
	}
	list := e.news
	e.news = nil
	if e.agreedAt.IsZero() && e.now.Sub(e.firstPeer) < catchUp {
		// This node has just joined: entries new to it are not new to its peers.
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
		if r := e.aside(n.slot); n.parked && r != nil {
			en = &entry{head: r.Head(), record: r}
		}
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
			e.sendHeads(to, announce.Have, false)
		}
	}
}

// packetCapacity returns how many bytes of entries fit into a packet.
func (e *Engine) packetCapacity() int { return MaxPacket - len(e.cfg.Member) - messageRest }

// messageRest is the overhead of a message, without the sender's name and entries.
const messageRest = 32

// addSmall adds an entry that fits into a packet, with the bodies of a manifest. It returns false
// if the entry is too long or the rate limit is reached.
func (e *Engine) addSmall(m *message, en *entry) bool {
	size := 0
	var bodies [][]byte
	if en.record != nil {
		size = len(en.record.Encoded())
	} else {
		size = len(en.manifest.Encoded())
		for _, x := range en.manifest.Entries {
			b := e.bodies[x.Hash].data
			bodies = append(bodies, b)
			size += len(b) + 4
		}
	}
	if size > e.packetCapacity() || !e.push.Take(e.now, 1) {
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

// sendSplit sends small entries in as few packets as possible.
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
		if size+len(r.Encoded()) > e.packetCapacity() {
			flush()
		}
		m.Records = append(m.Records, r)
		size += len(r.Encoded()) + 4
	}
	for _, x := range all.Manifests {
		n := len(x.Encoded())
		for _, en := range x.Entries {
			n += len(e.bodies[en.Hash].data) + 4
		}
		if size+n > e.packetCapacity() {
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

// headsEach is the maximum number of heads in a message.
const headsEach = 4096

func (e *Engine) sendHeads(to string, heads []Head, stream bool) {
	for chunk := range slices.Chunk(heads, headsEach) {
		e.send(to, message{Have: chunk, Stream: stream})
	}
}

// rumor starts to announce a version.
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

// rumorRound announces new versions to a few peers. Many versions at once get fewer rounds, because
// each receiver announces them too.
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
		e.sendHeads(to, heads, false)
	}
}

// AckPayload returns the payload of a probe response: the root of all entries and the local time.
func AckPayload(root Digest, now time.Time) []byte {
	b := []byte{protocolVersion}
	b = binary.BigEndian.AppendUint64(b, root[0])
	b = binary.BigEndian.AppendUint64(b, root[1])
	return binary.BigEndian.AppendUint64(b, uint64(max(now.UnixMilli(), 0)))
}

// AckSize is the length of AckPayload. Callers may append further bytes.
const AckSize = 1 + 16 + 8

// Root returns the sum of all entries.
func (e *Engine) Root() Digest { return e.tree.Sum }

func (e *Engine) acked(ev Acked) {
	p := e.peers[ev.Member]
	if p == nil || len(ev.Payload) < AckSize || ev.Payload[0] != protocolVersion {
		return
	}
	root := Digest{binary.BigEndian.Uint64(ev.Payload[1:]), binary.BigEndian.Uint64(ev.Payload[9:])}
	clock := time.UnixMilli(int64(binary.BigEndian.Uint64(ev.Payload[17:]) & (1<<48 - 1)))
	p.clock = clock.Sub(e.now.Add(-ev.RTT / 2))
	p.heard = e.now
	p.rtt = min(max(ev.RTT, 0), time.Second)
	e.measureClock()
	if e.noteRoot(p, root, false); root == e.tree.Sum {
		return
	}
	if e.now.Sub(e.changed) < gracePeriod && !e.deferred {
		e.deferred = true // the update is probably on its way
		return
	}
	e.deferred = false
	e.startSync(p, &root)
}

// agree records that this node has all entries of a peer.
func (e *Engine) agree() {
	e.agreed, e.agreedAt, e.deferred, e.joinTries = e.poolTime(), e.now, false, 0
}
