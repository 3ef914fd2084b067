package engine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// pending is a manifest that waits for bodies, or for the other shards of its set.
type pending struct {
	manifest *Manifest
	bodies   map[BodyHash][]byte
	size     int
	from     string
	until    time.Time
	tries    int
	ready    bool       // has all bodies
	asked    []BodyHash // by the last request
	stream   bool       // request bodies over streams
}

// Limits of manifests that wait.
const (
	maxPending      = 4096
	maxPendingBytes = 128 << 20
	bodiesEach      = 48 // per request; less than answerLimit
	pendingTries    = 3
	futureEpoch     = 366 * 24 * 3600 // seconds that an epoch may be ahead of the clock
)

// started returns the time at which the set of a manifest was created, in seconds since 1970.
func started(m *Manifest) uint64 {
	if m.Directory {
		return m.Epoch() >> 8
	}
	return m.Epoch()
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
	waiting := e.pendingBytes()
	for _, slot := range sortedSlots(e.pending) {
		p := e.pending[slot]
		if p == nil || p.ready {
			continue // accepted with an earlier one
		}
		for _, x := range p.manifest.Entries {
			if b, ok := bodies[x.Hash]; ok && p.bodies[x.Hash] == nil && waiting+len(b) <= maxPendingBytes {
				p.bodies[x.Hash] = append(make([]byte, 0, len(b)), b...)
				p.size += len(b)
				waiting += len(b)
			}
		}
		e.advance(p, false)
	}
}

func (e *Engine) pendingBytes() (n int) {
	for _, p := range e.pending {
		n += p.size
	}
	return n
}

func (e *Engine) receiveManifest(x *Manifest, m *message) {
	h := x.Head()
	defer e.dropKnown(h.Slot)
	if e.known(h) && !(x.Signed && !x.Directory && e.unsignedOnly(x.Node)) {
		return
	}
	if e.foreign(x.Cluster, x.Signature) {
		e.refuseManifest(x, whyCluster)
		return
	}
	if e.evicts(&e.heals, x) {
		e.refuseManifest(x, whyEvicted)
		return
	}
	if e.flooded(m) || !e.authentic(x, m.From) || e.known(h) {
		return
	}
	en := e.entries[h.Slot]
	if en != nil && en.head.Order == h.Order && en.head.Digest != h.Digest && !x.Directory {
		e.note("cloned",
			fmt.Sprintf("node %s published two manifests with the same order: two nodes use its identity, "+
				"or its disk was restored", x.Node))
	}
	if started(x) > e.seconds()+futureEpoch {
		e.refuseManifest(x, whyFuture) // no honest node reaches it, and no later epoch could replace it
		return
	}
	if e.stale(x) {
		e.refuseManifest(x, whyEarlierSet)
		return
	}
	if size := len(x.Encoded()); en == nil && e.bytes+size > e.cfg.Limits.Bytes {
		e.refuseManifest(x, whyStoreFull)
		return
	}
	if e.pending[h.Slot] == nil && len(e.pending) >= maxPending {
		e.count("refused: too many manifests wait")
		return
	}
	if e.receivedOwn(x) {
		return
	}
	c, err := record.LoadManifest(bytes.Clone(x.Encoded()))
	if err != nil {
		return
	}
	p := &pending{manifest: c, bodies: map[BodyHash][]byte{}, from: m.From, stream: m.Stream}
	if old := e.pending[h.Slot]; old != nil {
		p.bodies, p.size = old.bodies, old.size
	}
	e.setPending(p)
	for _, b := range m.Bodies {
		if hash := HashBody(b); slices.ContainsFunc(c.Entries, func(x Entry) bool { return x.Hash == hash }) &&
			p.bodies[hash] == nil {
			p.bodies[hash] = append(make([]byte, 0, len(b)), b...)
			p.size += len(b)
		}
	}
	p.until = e.now.Add(pullSlow)
	e.advance(p, false)
}

func (e *Engine) setPending(p *pending) {
	m := p.manifest
	e.pending[m.Slot()] = p
	if e.staged[m.Owner()] == nil {
		e.staged[m.Owner()] = map[int]*pending{}
	}
	e.staged[m.Owner()][m.Index] = p
}

func (e *Engine) dropPending(p *pending) {
	m := p.manifest
	delete(e.pending, m.Slot())
	delete(e.staged[m.Owner()], m.Index)
	if len(e.staged[m.Owner()]) == 0 {
		delete(e.staged, m.Owner())
	}
}

// stale reports whether a manifest belongs to an earlier set than the one in force.
func (e *Engine) stale(m *Manifest) bool {
	s := e.sets[m.Owner()]
	if s == nil {
		return false
	}
	f := s.first()
	return m.Epoch() < f.Epoch() || m.Epoch() == f.Epoch() && m.Index > 0 && f.Forgotten
}

// advance accepts a manifest if all of its bodies are present, and all other shards if it starts a
// new set. Otherwise it requests missing bodies, if the last request has been answered or expired.
func (e *Engine) advance(p *pending, expired bool) {
	if p.ready = e.complete(p.manifest, p.bodies); p.ready {
		if list := e.readySet(p); list != nil {
			e.acceptSet(list)
		}
		return
	}
	if !expired &&
		slices.ContainsFunc(p.asked, func(h BodyHash) bool { return p.bodies[h] == nil && e.bodies[h] == nil }) {
		return
	}
	p.asked, p.until = e.missingBodies(p, bodiesEach), e.now.Add(pullSlow)
	e.send(p.from, message{WantBody: p.asked, Stream: expired || p.stream})
}

// readySet returns the manifests that can be accepted with p: only p if it changes the set in
// force, or all shards of the new set, or nil if some are missing.
func (e *Engine) readySet(p *pending) (out []*pending) {
	m := p.manifest
	if s := e.sets[m.Owner()]; s != nil && m.Epoch() == s.first().Epoch() &&
		(m.Shards == s.first().Shards || m.Forgotten) {
		return []*pending{p}
	}
	staged := e.staged[m.Owner()]
	f := staged[0]
	if f == nil || len(staged) < f.manifest.Shards {
		return nil
	}
	for i := range f.manifest.Shards {
		q := staged[i]
		if q == nil || !q.ready || q.manifest.Epoch() != f.manifest.Epoch() || q.manifest.Shards != f.manifest.Shards {
			return nil
		}
		out = append(out, q)
	}
	for _, q := range out { // a stored body may have been dropped in the meantime
		if q.ready = e.complete(q.manifest, q.bodies); !q.ready {
			return nil
		}
	}
	return out
}

func (e *Engine) missingBodies(p *pending, limit int) (out []BodyHash) {
	for _, x := range p.manifest.Entries {
		if p.bodies[x.Hash] == nil && e.bodies[x.Hash] == nil && len(out) < limit && !slices.Contains(out, x.Hash) {
			out = append(out, x.Hash)
		}
	}
	return out
}

// missingShards returns the slots that a set waits for. Only its lowest shard reports them.
func (e *Engine) missingShards(m *Manifest) (out []Slot) {
	staged := e.staged[m.Owner()]
	if m.Index > slices.Min(slices.Collect(maps.Keys(staged))) {
		return nil
	}
	if m.Index > 0 {
		return []Slot{m.Owner().Slot(0)}
	}
	for i := range m.Shards {
		if q := staged[i]; (q == nil || q.manifest.Epoch() != m.Epoch()) && len(out) < pullSlots {
			out = append(out, m.Owner().Slot(i))
		}
	}
	return out
}

func (e *Engine) expirePending() {
	for _, slot := range sortedSlots(e.pending) {
		p := e.pending[slot]
		if p == nil || p.until.After(e.now) {
			continue
		}
		if p.tries++; p.tries >= pendingTries || e.peers[p.from] == nil {
			e.dropPending(p) // the next comparison finds it again
			e.count("manifest given up: no bodies or shards")
			continue
		}
		e.advance(p, true)
		if e.pending[slot] == p && p.ready {
			p.until = e.now.Add(pullSlow)
			if missing := e.missingShards(p.manifest); len(missing) > 0 {
				e.send(p.from, message{Want: missing, Stream: true})
			}
		}
	}
}

func (e *Engine) acceptSet(list []*pending) {
	size, manifests, bodies := 0, []*Manifest(nil), map[BodyHash][]byte{}
	for _, p := range list {
		e.dropPending(p)
		size += p.size
		manifests = append(manifests, p.manifest)
		maps.Copy(bodies, p.bodies)
	}
	if e.bytes+size > e.cfg.Limits.Bytes {
		for _, m := range manifests {
			e.refuseManifest(m, whyStoreFull)
		}
		return
	}
	e.setManifests(manifests, bodies)
	for _, p := range list {
		e.news = append(e.news, news{slot: p.manifest.Slot(), from: p.from})
	}
	o := manifests[0].Owner()
	for _, i := range slices.Sorted(maps.Keys(e.staged[o])) {
		if p := e.staged[o][i]; e.stale(p.manifest) {
			e.dropPending(p)
		}
	}
}
