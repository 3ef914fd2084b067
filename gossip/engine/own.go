package engine

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// own is the published state of this node.
type own struct {
	epoch, seq uint64
	items      []OwnItem
	leaving    bool
	published  bool // since the start
	adopted    int  // times the epoch was raised above an unknown epoch of this node
	cloned     bool
}

// pending is a manifest with missing bodies.
type pending struct {
	manifest *Manifest
	bodies   map[BodyHash][]byte
	size     int
	from     string
	until    time.Time
	tries    int
}

// Limits of manifests with missing bodies.
const (
	maxPending      = 256
	maxPendingBytes = 64 << 20
	bodiesEach      = 48 // per request; less than answerLimit
	pendingTries    = 3
	// After a restore of its disk, a node can meet several later states of itself, one by one, if its
	// peers were partitioned.
	maxAdopted  = 3
	futureEpoch = 366 * 24 * 3600 // seconds that an epoch may be ahead of the clock
)

// startEpoch sets an epoch above all earlier ones. It must be on disk before anything is sent.
func (e *Engine) startEpoch() {
	epoch := max(e.own.epoch+1, uint64(max(e.wall.Unix(), 1)))
	if en := e.entries[e.cfg.Self.slot()]; en != nil {
		epoch = max(epoch, en.manifest.Epoch()+1)
	}
	e.setEpoch(epoch)
}

func (e *Engine) setEpoch(epoch uint64) {
	e.own.epoch, e.own.seq = epoch, 0
	e.out.Durable = append(e.out.Durable, Op{Bucket: bucketMeta, Key: metaEpoch, Value: putNumber(epoch)})
}

func (e *Engine) setOwn(ev Own) {
	e.own.items, e.own.leaving, e.own.published = ev.Items, ev.Leaving, true
	e.publish()
}

// publish creates a manifest of this node's items.
func (e *Engine) publish() {
	if e.own.cloned {
		e.count("refused: own manifest of a cloned node")
		return
	}
	if e.own.seq++; e.own.seq >= 1<<sequenceBits {
		e.setEpoch(e.own.epoch + 1)
		e.own.seq = 1
	}
	m := Manifest{Node: e.cfg.Self, Name: e.cfg.Name, Order: makeOrder(e.own.epoch, e.own.seq), Leaving: e.own.leaving}
	bodies := map[BodyHash][]byte{}
	for _, i := range e.own.items {
		h := HashBody(i.Body)
		bodies[h] = i.Body
		m.Entries = append(m.Entries, Entry{i.Key, h})
	}
	sealed, err := m.seal()
	if err != nil {
		e.note("own", fmt.Sprintf("the items of this node cannot be published: %v", err))
		return
	}
	e.setManifest(e.entries[e.cfg.Self.slot()], sealed, bodies)
	e.news = append(e.news, news{slot: e.cfg.Self.slot()})
}

// CheckOwn returns an error if items exceed a limit of Own events.
func CheckOwn(items []OwnItem) error {
	m := Manifest{Node: NodeID{1}, Order: 1}
	for _, i := range items {
		if len(i.Body) > MaxBody {
			return fmt.Errorf("%s has %d bytes, at most %d are allowed", i.Key, len(i.Body), MaxBody)
		}
		m.Entries = append(m.Entries, Entry{i.Key, HashBody(i.Body)})
	}
	_, err := m.seal()
	return err
}

// receiveManifests stores the manifests and bodies of a message.
func (e *Engine) receiveManifests(m *message) {
	for _, x := range m.Manifests {
		e.receiveManifest(x, m)
	}
	if len(m.Bodies) == 0 || len(e.pending) == 0 {
		return
	}
	bodies := map[BodyHash][]byte{}
	for _, b := range m.Bodies {
		bodies[HashBody(b)] = b
	}
	for _, slot := range sortedSlots(e.pending) {
		p := e.pending[slot]
		for _, x := range p.manifest.Entries {
			if b, ok := bodies[x.Hash]; ok && p.bodies[x.Hash] == nil && e.pendingBytes()+len(b) <= maxPendingBytes {
				p.bodies[x.Hash] = append(make([]byte, 0, len(b)), b...)
				p.size += len(b)
			}
		}
		e.advance(slot, p, p.from == m.From)
	}
}

func (e *Engine) pendingBytes() (n int) {
	for _, p := range e.pending {
		n += p.size
	}
	return n
}

func (e *Engine) receiveManifest(x *Manifest, m *message) {
	h := x.head()
	defer e.dropKnown(h.Slot)
	if e.known(h) {
		return
	}
	en := e.entries[h.Slot]
	if en != nil && en.head.Order == h.Order && en.head.Digest != h.Digest {
		e.note("cloned",
			fmt.Sprintf("node %s published two manifests with the same order: two nodes use its identity, "+
				"or its disk was restored", x.Node))
	}
	if x.Epoch() > uint64(max(e.poolTime().Unix(), 0))+futureEpoch {
		e.refuse(h, "future") // no honest node reaches it, and no later epoch could replace it
		return
	}
	if size := len(x.raw); en == nil && e.bytes+size > e.cfg.Limits.Bytes {
		e.refuse(h, "store full")
		return
	}
	if e.pending[h.Slot] == nil && len(e.pending) >= maxPending {
		e.count("refused: too many manifests wait for bodies")
		return
	}
	c, err := DecodeManifest(bytes.Clone(x.raw))
	if err != nil {
		return
	}
	p := &pending{manifest: c, bodies: map[BodyHash][]byte{}, from: m.From}
	if old := e.pending[h.Slot]; old != nil {
		p.bodies, p.size = old.bodies, old.size
	}
	e.pending[h.Slot] = p
	for _, b := range m.Bodies {
		if hash := HashBody(b); slices.ContainsFunc(c.Entries, func(x Entry) bool { return x.Hash == hash }) &&
			p.bodies[hash] == nil {
			p.bodies[hash] = append(make([]byte, 0, len(b)), b...)
			p.size += len(b)
		}
	}
	e.advance(h.Slot, p, true)
}

// advance accepts a manifest if all of its bodies are present, and requests missing ones otherwise.
func (e *Engine) advance(slot Slot, p *pending, progress bool) {
	if e.complete(p.manifest, p.bodies) {
		delete(e.pending, slot)
		e.acceptManifest(p)
		return
	}
	if !progress || p.until.After(e.now) && e.missingBodies(p, bodiesEach) == nil {
		return
	}
	p.until = e.now.Add(pullSlow)
	e.send(p.from, message{WantBody: e.missingBodies(p, bodiesEach)})
}

func (e *Engine) missingBodies(p *pending, limit int) (out []BodyHash) {
	for _, x := range p.manifest.Entries {
		if p.bodies[x.Hash] == nil && e.bodies[x.Hash] == nil && len(out) < limit && !slices.Contains(out, x.Hash) {
			out = append(out, x.Hash)
		}
	}
	return out
}

func (e *Engine) expirePending() {
	for _, slot := range sortedSlots(e.pending) {
		p := e.pending[slot]
		if p.until.After(e.now) {
			continue
		}
		if p.tries++; p.tries >= pendingTries || e.peers[p.from] == nil {
			delete(e.pending, slot) // the next comparison finds it again
			e.count("manifest given up: no bodies")
			continue
		}
		e.advance(slot, p, true)
	}
}

func (e *Engine) acceptManifest(p *pending) {
	m := p.manifest
	slot := m.Node.slot()
	if e.bytes+p.size > e.cfg.Limits.Bytes {
		e.refuse(m.head(), "store full")
		return
	}
	e.setManifest(e.entries[slot], m, p.bodies)
	e.news = append(e.news, news{slot, p.from})
	if m.Node == e.cfg.Self {
		e.receivedOwn(m)
	}
}

// receivedOwn handles a manifest of this node that this start has not written. It comes from an
// earlier start whose epoch was lost, so the epoch is raised above it. If that happens repeatedly,
// another node uses this identity.
func (e *Engine) receivedOwn(m *Manifest) {
	switch {
	case !e.own.published:
		e.setEpoch(m.Epoch() + 1)
	case e.own.adopted < maxAdopted:
		e.own.adopted++
		e.setEpoch(m.Epoch() + 1)
		e.note("epoch",
			"peers have a later state of this node than its disk: the disk was restored, or two nodes use its identity")
		e.publish()
	case !e.own.cloned:
		e.own.cloned = true
		e.note("cloned", "another node uses the identity of this node; remove the identity of one of them, "+
			"so it gets a new one, and restart it")
	}
}

// forget marks a node as permanently gone. The mark is a manifest that is identical on every node
// that creates it, and greater than all manifests of the epoch.
func (e *Engine) forget(n NodeID, why string) {
	en := e.entries[n.slot()]
	if en == nil || en.manifest.Forgotten || n == e.cfg.Self {
		return
	}
	m, err := Manifest{Node: n, Name: en.manifest.Name, Order: makeOrder(en.manifest.Epoch(), 1<<sequenceBits-1),
		Forgotten: true}.seal()
	if err != nil {
		return
	}
	e.note("forgotten", fmt.Sprintf("node %s was forgotten: %s", n, why))
	e.setManifest(en, m, nil)
	e.news = append(e.news, news{slot: n.slot()})
}
