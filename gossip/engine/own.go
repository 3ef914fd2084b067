package engine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/gossip/engine/bucket"
	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// Limits of the items of one owner.
const (
	MaxOwnItems = 16384
	MaxOwnBytes = 32 << 20 // of all bodies
)

// own is the published state of this node.
type own struct {
	publication
	published bool          // since the start
	adopted   int           // times the epoch was raised above an unknown epoch of this node
	raises    bucket.Bucket // limits how often a mark of this node raises the epoch
	cloned    bool
}

// publication holds the items of an owner that this node publishes.
type publication struct {
	owner        owner
	epoch, seq   uint64 // of the last manifest that this start wrote; 0: none
	items        map[Key]*ownItem
	generation   int      // of the last Own event
	changed      []uint64 // hashes of keys with changes that are not published
	name, detail string
	leaving      bool
}

// ownItem is a published item.
type ownItem struct {
	body       []byte
	hash       BodyHash
	keyHash    uint64
	generation int // of the last Own event with this item
}

// After a restore of its disk, a node can meet several later states of itself, one by one, if its
// peers were partitioned.
const maxAdopted = 3

// startEpoch sets an epoch above all earlier ones. It must be on disk before anything is sent.
func (e *Engine) startEpoch() {
	e.own.owner = owner{ID: e.cfg.Self}
	epoch := max(e.own.epoch+1, uint64(max(e.wall.Unix(), 1)))
	if s := e.sets[e.own.owner]; s != nil {
		epoch = max(epoch, s.first().Epoch()+1)
	}
	e.setEpoch(epoch)
}

func (e *Engine) setEpoch(epoch uint64) {
	e.own.epoch, e.own.seq = epoch, 0
	e.out.Durable = append(e.out.Durable, Op{Bucket: bucketMeta, Key: metaEpoch, Value: putNumber(epoch)},
		Op{Bucket: bucketMeta, Key: metaVerified, Value: putNumber(epoch)})
}

// setOwn publishes the items of this node or of a directory.
func (e *Engine) setOwn(ev Own) {
	if err := CheckOwn(ev.Items); err != nil {
		e.note("own", fmt.Sprintf("the items of this node cannot be published: %v", err))
		return
	}
	p := &e.own.publication
	name := e.cfg.Name
	if ev.Owner == (NodeID{}) || ev.Owner == e.cfg.Self {
		e.own.published = true
	} else {
		if p = e.published[ev.Owner]; p == nil {
			p = &publication{owner: owner{ID: ev.Owner, Directory: true}}
			e.published[ev.Owner] = p
		}
		name = ev.Name
	}
	p.replace(ev.Items)
	if p.name != name || p.detail != ev.Detail || p.leaving != ev.Leaving {
		p.name, p.detail, p.leaving = name, ev.Detail, ev.Leaving
		p.changed = append(p.changed, 0) // the first shard holds these fields
	}
	if s := e.sets[p.owner]; p.owner.Directory && s != nil && e.sameItems(p, s) {
		p.changed = nil // another node may have published them
		return
	}
	e.publish(p)
}

// replace replaces the items. It hashes only new keys and bodies.
func (p *publication) replace(items []OwnItem) {
	if p.items == nil {
		p.items = make(map[Key]*ownItem, len(items))
	}
	p.generation++
	for _, i := range items {
		old := p.items[i.Key]
		if old == nil {
			old = &ownItem{keyHash: i.Key.Hash()}
			p.items[i.Key] = old
		} else if bytes.Equal(old.body, i.Body) {
			old.generation = p.generation
			continue
		}
		old.body, old.hash, old.generation = i.Body, HashBody(i.Body), p.generation
		p.changed = append(p.changed, old.keyHash)
	}
	maps.DeleteFunc(p.items, func(_ Key, i *ownItem) bool {
		if i.generation != p.generation {
			p.changed = append(p.changed, i.keyHash)
		}
		return i.generation != p.generation
	})
}

// publish creates manifests of the shards that have changed. If the number of shards has changed,
// or this start has not written the set in force, it creates a whole set with a new epoch.
func (e *Engine) publish(p *publication) {
	if !p.owner.Directory && e.own.cloned {
		e.count("refused: own manifest of a cloned node")
		return
	}
	current := e.sets[p.owner]
	count := 1
	if current != nil {
		count = len(current.shards)
	}
	count = e.shardsOf(p, count)
	dirty := make([]bool, count)
	for _, h := range p.changed {
		dirty[h&uint64(count-1)] = true
	}
	if current == nil || current.first().Epoch() != p.epoch || len(current.shards) != count ||
		p.seq+uint64(count) >= 1<<record.SequenceBits-1 {
		e.nextEpoch(p, current)
		for i := range dirty {
			dirty[i] = true
		}
	}
	list, bodies, err := e.sealShards(p, dirty)
	if err != nil {
		e.note("own", fmt.Sprintf("the items of this node cannot be published: %v", err))
		return
	}
	if p.owner.Directory && e.cfg.Policy != nil && len(list) > 0 {
		if why := e.cfg.Policy.Manifest(list[0]); why != "" {
			e.distrust(list[0].Head(), Refusal{Node: p.owner.ID, Detail: why}, whyPolicy)
			e.note("own", fmt.Sprintf("the directory %s is not published: %s", p.owner.ID, why))
			return
		}
	}
	p.changed = nil
	if len(list) == 0 {
		return
	}
	e.setManifests(list, bodies)
	for _, m := range list {
		e.news = append(e.news, news{slot: m.Slot()})
	}
}

// nextEpoch selects an epoch above that of the set in force.
func (e *Engine) nextEpoch(p *publication, current *set) {
	last := p.epoch
	if current != nil {
		last = max(last, current.first().Epoch())
	}
	switch {
	case p.owner.Directory:
		// Two publishers rarely select the same epoch, even in the same second.
		p.epoch, p.seq = max(last+1, uint64(max(e.poolTime().Unix(), 1))<<8)+uint64(e.cfg.Random(256)), 0
	case current != nil && current.first().Epoch() >= p.epoch:
		e.setEpoch(last + 1)
	}
}

// sealShards creates the manifests of the dirty shards.
func (e *Engine) sealShards(p *publication, dirty []bool) ([]*Manifest, map[BodyHash][]byte, error) {
	shards := make([]Manifest, len(dirty))
	bodies := map[BodyHash][]byte{}
	for k, i := range p.items {
		if at := i.keyHash & uint64(len(dirty)-1); dirty[at] {
			shards[at].Entries = append(shards[at].Entries, Entry{Key: k, Hash: i.hash})
			bodies[i.hash] = i.body
		}
	}
	var out []*Manifest
	for i, m := range shards {
		if !dirty[i] {
			continue
		}
		p.seq++
		m.Node, m.Directory, m.Order, m.Index, m.Shards = p.owner.ID, p.owner.Directory, record.MakeOrder(p.epoch, p.seq), i,
			len(dirty)
		m.Cluster = e.cfg.Cluster
		if i == 0 {
			m.Name, m.Detail, m.Leaving = p.name, p.detail, p.leaving
		}
		sealed, err := m.Seal(e.cfg.Signer)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, sealed)
	}
	return out, bodies, nil
}

// shardsOf returns the number of shards of a publication. A shard has at most ShardItems items on
// average, and fits into a manifest. The number decreases only if the shards would be small, so a
// few items do not change it repeatedly.
func (e *Engine) shardsOf(p *publication, current int) int {
	if !p.owner.Directory && e.legacyPeers() && p.fits(1) {
		return 1
	}
	limit := e.cfg.Limits.ShardItems
	n := 1
	for n < record.MaxShards && (len(p.items) > n*limit || !p.fits(n)) {
		n *= 2
	}
	if n < current && len(p.items)*4 > current*limit {
		return current
	}
	return n
}

// legacyPeers reports whether a live peer does not support shards.
func (e *Engine) legacyPeers() bool {
	return slices.ContainsFunc(e.alive, func(m string) bool { return e.peers[m].features&FeatureShards == 0 })
}

// fits reports whether each of n shards fits into a manifest.
func (p *publication) fits(n int) bool {
	sizes, counts := make([]int, n), make([]int, n)
	for k, i := range p.items {
		at := i.keyHash & uint64(n-1)
		sizes[at] += len(k.Kind) + len(k.Mesh) + len(k.Name) + len(i.hash) + 16
		counts[at]++
	}
	return slices.Max(sizes) < MaxManifest-1024 && slices.Max(counts) <= MaxManifestEntries
}

// sameItems reports whether the set in force lists exactly the items of a publication.
func (e *Engine) sameItems(p *publication, s *set) bool {
	f := s.first()
	if f.Forgotten || f.Signed != (e.cfg.Signer != nil) || f.Name != p.name || f.Detail != p.detail ||
		f.Leaving != p.leaving {
		return false
	}
	n := 0
	for _, en := range s.shards {
		n += len(en.manifest.Entries)
		for _, x := range en.manifest.Entries {
			if i := p.items[x.Key]; i == nil || i.hash != x.Hash {
				return false
			}
		}
	}
	return n == len(p.items)
}

// CheckOwn returns an error if items exceed a limit of Own events.
func CheckOwn(items []OwnItem) error {
	if len(items) > MaxOwnItems {
		return fmt.Errorf("%d items, at most %d of one node or directory are allowed", len(items), MaxOwnItems)
	}
	seen, size := make(map[Key]bool, len(items)), 0
	for _, i := range items {
		if err := i.Key.Validate(); err != nil {
			return err
		}
		if seen[i.Key] {
			return fmt.Errorf("%s is listed twice", i.Key)
		}
		seen[i.Key] = true
		if len(i.Body) > MaxBody {
			return fmt.Errorf("%s has %d bytes, at most %d are allowed", i.Key, len(i.Body), MaxBody)
		}
		size += len(i.Body)
	}
	if size > MaxOwnBytes {
		return fmt.Errorf("%d items have %d bytes, at most %d of one node or directory are allowed", len(items), size,
			MaxOwnBytes)
	}
	return nil
}

// receivedOwn handles a manifest of this node that this start has not written, and reports whether
// it must not be accepted. It comes from an earlier start whose epoch was lost, so the epoch is
// raised above it. If that happens repeatedly, another node uses this identity.
func (e *Engine) receivedOwn(m *Manifest) bool {
	if p := e.published[m.Node]; m.Directory && p != nil && p.epoch == m.Epoch() {
		p.epoch = 0 // another node has published it with the same epoch
		e.publish(p)
		return true
	}
	if m.Owner() != e.own.owner || m.Epoch() < e.own.epoch || e.own.cloned {
		return false
	}
	switch {
	case !e.own.published:
		e.setEpoch(m.Epoch() + 1)
		return false
	case m.Forgotten: // peers have not heard this node for long
		if !e.own.raises.Take(e.now, 1) {
			e.count("refused: marks of this node")
			return true
		}
		e.setEpoch(m.Epoch() + 1)
		e.publish(&e.own.publication)
		return true
	case e.own.adopted < maxAdopted:
		e.own.adopted++
		e.setEpoch(m.Epoch() + 1)
		e.note("epoch",
			"peers have a later state of this node than its disk: the disk was restored, or two nodes use its identity")
		e.publish(&e.own.publication)
		return true
	}
	e.own.cloned = true
	e.note("cloned", "another process uses the ID of this node; this node publishes nothing until that one has another ID")
	return false
}

// forget marks a node or a directory as permanently gone. The mark is a manifest that is identical
// on every node that creates it, and greater than all manifests of the epoch.
func (e *Engine) forget(n NodeID, why string) {
	s := e.sets[owner{ID: n}]
	if s == nil {
		s = e.sets[owner{ID: n, Directory: true}]
		delete(e.published, n)
		e.live.Drop(n)
	}
	f := e.withheldManifest(n)
	if s != nil {
		f = s.first()
	}
	if f == nil || f.Forgotten || n == e.cfg.Self {
		return
	}
	m := Manifest{Node: n, Name: f.Name, Order: record.MakeOrder(f.Epoch(), 1<<record.SequenceBits-1), Forgotten: true,
		Directory: f.Directory}
	if e.cfg.Signer != nil {
		m.Cluster = e.cfg.Cluster
	}
	mark, err := m.Seal(e.cfg.Signer)
	if err != nil {
		return
	}
	what := "node"
	if f.Directory {
		what = "directory"
	}
	e.note("forgotten", fmt.Sprintf("%s %s was forgotten: %s", what, n, why))
	e.setManifests([]*Manifest{mark}, nil)
	e.news = append(e.news, news{slot: mark.Slot()})
}

// withheldManifest returns the first manifest of the newest withheld set of a node or directory, or
// nil.
func (e *Engine) withheldManifest(n NodeID) (last *Manifest) {
	for _, o := range [...]owner{{ID: n}, {ID: n, Directory: true}} {
		for _, w := range e.withheld[o.Slot(0)] {
			if m := w.manifests[0]; last == nil || last.Version().Less(m.Version()) {
				last = m
			}
		}
	}
	return last
}
