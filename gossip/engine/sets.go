package engine

import (
	"cmp"
	"slices"
)

// set is the complete set of shards of an owner. Readers and the tree see only complete sets.
type set struct{ shards []*entry }

func (s *set) first() *Manifest { return s.shards[0].manifest }

// setManifests replaces shards of an owner, and drops those above the number of shards. All bodies
// must be in bodies or stored.
func (e *Engine) setManifests(list []*Manifest, bodies map[BodyHash][]byte) {
	for _, m := range list {
		e.useBodies(m, bodies)
	}
	o := list[0].Owner()
	s := e.sets[o]
	if s == nil {
		s = &set{}
		e.sets[o] = s
	}
	for _, m := range list {
		s.shards = append(s.shards, make([]*entry, max(m.Index+1-len(s.shards), 0))...)
		if old := s.shards[m.Index]; old != nil {
			e.removeManifest(old)
		}
		en := &entry{head: m.Head(), manifest: m}
		s.shards[m.Index] = en
		e.entries[en.head.Slot] = en
		e.tree.Put(en.head)
		e.bytes += len(m.Encoded())
		if m.Extended() {
			e.extended++
		}
		for _, x := range m.Entries {
			e.contain(x.Key, 1)
		}
		e.write(bucketOf(m), string(en.head.Slot[:]), m.Encoded())
	}
	f := s.first()
	for _, en := range s.shards[f.Shards:] {
		e.removeManifest(en)
		e.write(bucketOf(en.manifest), string(en.head.Slot[:]), nil)
	}
	s.shards = s.shards[:f.Shards:f.Shards]
	e.dropSuperseded(f.Head())
	e.changed = e.now
	e.out.Changed = append(e.out.Changed, Change{Node: o.ID, Directory: o.Directory})
	if !o.Directory {
		e.live.SetLeft(o.ID, f.Leaving, f.Forgotten)
		e.noteName(f)
	}
}

// useBodies stores the bodies of a manifest.
func (e *Engine) useBodies(m *Manifest, bodies map[BodyHash][]byte) {
	for _, x := range m.Entries {
		b := e.bodies[x.Hash]
		if b == nil {
			b = &body{data: bodies[x.Hash]}
			if b.data == nil {
				b.data = []byte{} // nil would delete the stored value
			}
			e.bodies[x.Hash] = b
			e.bytes += len(b.data)
			e.write(bucketBodies, string(x.Hash[:]), b.data)
		}
		b.refs++
	}
}

// removeManifest removes a manifest and bodies that no other one uses.
func (e *Engine) removeManifest(en *entry) {
	e.tree.Drop(en.head)
	delete(e.entries, en.head.Slot)
	e.bytes -= len(en.manifest.Encoded())
	if en.manifest.Extended() {
		e.extended--
	}
	for _, x := range en.manifest.Entries {
		e.contain(x.Key, -1)
		b := e.bodies[x.Hash]
		if b.refs--; b.refs == 0 {
			delete(e.bodies, x.Hash)
			e.bytes -= len(b.data)
			e.write(bucketBodies, string(x.Hash[:]), nil)
		}
	}
}

// dropOwner removes all manifests of an owner.
func (e *Engine) dropOwner(o owner) {
	for _, en := range e.sets[o].shards {
		e.removeManifest(en)
		e.write(bucketOf(en.manifest), string(en.head.Slot[:]), nil)
	}
	delete(e.sets, o)
	if !o.Directory {
		e.live.Drop(o.ID)
	}
	e.out.Changed = append(e.out.Changed, Change{Node: o.ID, Directory: o.Directory})
}

// loadManifests restores complete sets. Peers have the others too.
func (e *Engine) loadManifests(list []*Manifest, bodies map[BodyHash][]byte) {
	byOwner := map[owner][]*Manifest{}
	var order []owner
	for _, m := range list {
		if byOwner[m.Owner()] == nil {
			order = append(order, m.Owner())
		}
		byOwner[m.Owner()] = append(byOwner[m.Owner()], m)
	}
	for _, o := range order {
		l := byOwner[o]
		slices.SortFunc(l, func(a, b *Manifest) int { return cmp.Compare(a.Index, b.Index) })
		f := l[0]
		l = l[:min(f.Shards, len(l))]
		whole := len(l) == f.Shards
		for i, m := range l {
			whole = whole && m.Index == i && m.Epoch() == f.Epoch() && m.Shards == f.Shards && e.complete(m, bodies)
		}
		if whole {
			e.setManifests(l, bodies)
		}
	}
}

// complete reports whether all bodies of a manifest are present.
func (e *Engine) complete(m *Manifest, bodies map[BodyHash][]byte) bool {
	for _, x := range m.Entries {
		if _, ok := bodies[x.Hash]; !ok && e.bodies[x.Hash] == nil {
			return false
		}
	}
	return true
}
