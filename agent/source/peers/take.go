package peers

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// take applies changes of the pool to the store. Except at the start, it skips writes of this node,
// which their writer applies after they are in the pool.
func (s *Source) take(changes []engine.Change, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.o.Store.Snapshot()
	all := s.node.Owned()
	names := s.names(all)
	var records []store.Op
	var came []time.Time
	nodes := map[engine.NodeID]bool{}
	for _, c := range changes {
		if c.Node != (engine.NodeID{}) {
			nodes[c.Node] = true
			continue
		}
		r := s.node.Record(c.Key)
		if !first && r != nil && s.wrote(r) {
			continue
		}
		if op, ok := s.record(snap, c.Key, names); ok {
			records = append(records, op)
			if !first && r != nil {
				came = append(came, r.HLC.Time())
			}
		}
	}
	s.apply(store.SourceGossip, records)
	for _, at := range came {
		if s.o.Converged != nil {
			s.o.Converged(max(s.o.Now().Sub(at), 0))
		}
	}
	if len(nodes) > 0 {
		s.apply(store.SourceGossip, renameWriters(s.o.Store.Snapshot(), names))
		s.takeOwned(all, nodes)
		s.apply(store.SourcePeer, s.owned(snap, all))
		s.takeTrust(all, nodes)
	}
}

// wrote reports whether this node wrote a record.
func (s *Source) wrote(r *engine.Record) bool { return [8]byte(r.Writer) == [8]byte(s.self[:8]) }

// resolveShared checks keys that were shared recently: another node's version may have arrived
// between the writes to the pool and to the store.
func (s *Source) resolveShared() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.shared) == 0 {
		return
	}
	snap, names := s.o.Store.Snapshot(), s.names(s.node.Owned())
	var records []store.Op
	for key := range maps.Clone(s.shared) {
		r := s.node.Record(engine.Key(key))
		op, differs := s.record(snap, engine.Key(key), names)
		switch {
		case !differs:
			delete(s.shared, key)
		case r != nil && !s.wrote(r):
			records = append(records, op)
		}
	}
	s.apply(store.SourceGossip, records)
}

// names returns the names of nodes, by the writer ID used in records.
func (s *Source) names(all []gossip.Owned) map[[8]byte]string {
	out := map[[8]byte]string{}
	for i := range all {
		out[[8]byte(all[i].Node[:8])] = all[i].Name
	}
	for _, m := range s.node.Members() {
		out[[8]byte(m.Node[:8])] = m.Name
	}
	return out
}

// record returns the store operation for a record of the pool, if one is necessary.
func (s *Source) record(snap *store.Snapshot, k engine.Key, names map[[8]byte]string) (op store.Op, ok bool) {
	key := resource.Key(k)
	have, known := snap.Get(key)
	of := have.Source.Kind
	r := s.node.Record(k)
	delete(s.waiting, key)
	switch {
	case r == nil:
		return op, false
	case r.Deleted:
		_, damaged := snap.Damaged(key) // the pool has it although the local copy is damaged
		return store.Op{Delete: key}, damaged || known && (of == store.SourceGossip || of == store.SourceAPI)
	case ofNode(key.Kind):
		s.waiting[key] = "resources of this kind belong to a node"
		return op, false
	case known && of != store.SourceGossip && of != store.SourceAPI:
		s.waiting[key] = fmt.Sprintf("this node has it from %s, which takes precedence here", have.Source)
		return op, false
	}
	res, err := s.o.Decode(r.Body)
	if err == nil && res.Key != key {
		err = fmt.Errorf("it contains %s", res.Key)
	}
	if err != nil {
		s.waiting[key] = fmt.Sprintf("this agent version cannot decode it: %v", err)
		return op, false
	}
	if known && have.Digest == res.Digest {
		return op, false
	}
	writer := [8]byte(r.Writer)
	return store.Op{Put: res,
		Source: store.Source{Kind: store.SourceGossip, Detail: cmp.Or(names[writer], unnamed(writer))}}, true
}

// unnamed returns a placeholder for a node whose name is not known yet.
func unnamed(writer [8]byte) string { return fmt.Sprintf("%x", writer) }

// renameWriters replaces placeholders in the store with node names that are known now.
func renameWriters(snap *store.Snapshot, names map[[8]byte]string) (out []store.Op) {
	by := map[string]string{}
	for writer, name := range names {
		by[unnamed(writer)] = name
	}
	for _, rec := range snap.BySource(store.SourceGossip) {
		if name := by[rec.Source.Detail]; name != "" {
			out = append(out, store.Op{Put: rec.Resource, Source: store.Source{Kind: store.SourceGossip, Detail: name}})
		}
	}
	return out
}

// takeOwned reads the resources that nodes own.
func (s *Source) takeOwned(all []gossip.Owned, nodes map[engine.NodeID]bool) {
	seen := map[engine.NodeID]bool{}
	reached := s.takeReach(all, nodes)
	for i := range all {
		o := &all[i]
		seen[o.Node] = true
		if o.Node != s.self && (nodes[o.Node] || reached[o.Node]) {
			s.peers[o.Node] = s.serving(o)
		}
	}
	for id := range nodes {
		if !seen[id] && id != s.self {
			s.peers[id] = nil
		}
	}
}

// usable returns the valid resources of a node.
func (s *Source) usable(o *gossip.Owned) map[resource.Key]*resource.Resource {
	out := map[resource.Key]*resource.Resource{}
	for _, item := range o.Items {
		key := resource.Key(item.Key)
		if item.Body == nil || !ofNode(key.Kind) {
			continue // the body has not arrived yet, or a later version owns this kind
		}
		r, err := s.o.Decode(item.Body)
		if err != nil || r.Key != key {
			s.o.Log.Warn("a resource of another node is refused", "node", o.Name, "resource", key, "error", err)
			continue
		}
		out[key] = r
	}
	return out
}

// owned returns the store operations for the resources of other nodes. If several nodes claim a
// name, the one with the lowest ID wins, and a local resource always wins.
func (s *Source) owned(snap *store.Snapshot, all []gossip.Owned) (out []store.Op) {
	clear(s.clashes)
	names := map[engine.NodeID]string{}
	for i := range all {
		names[all[i].Node] = all[i].Name
	}
	type claim struct {
		res  *resource.Resource
		node string
	}
	wanted := map[resource.Key]claim{}
	ids := slices.SortedFunc(maps.Keys(s.peers), compareNodes)
	for _, id := range ids {
		for key, r := range s.peers[id] {
			name := cmp.Or(names[id], id.String())
			if first, taken := wanted[key]; taken {
				s.clashes[key] = fmt.Sprintf("nodes %s and %s both claim this name; that of %[2]s is used", name, first.node)
				continue
			}
			wanted[key] = claim{r, name}
		}
	}
	present := map[string]bool{}
	for _, name := range names {
		present[name] = true
	}
	for _, m := range s.node.Members() { // including forgotten nodes
		present[m.Name] = true
	}
	for _, rec := range snap.BySource(store.SourcePeer) {
		if _, ok := wanted[rec.Key]; !ok && (s.agreed || present[rec.Source.Detail]) {
			out = append(out, store.Op{Delete: rec.Key, Source: rec.Source})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(wanted), resource.Key.Compare) {
		w := wanted[key]
		have, known := snap.Get(key)
		from := store.Source{Kind: store.SourcePeer, Detail: w.node}
		switch {
		case known && have.Source.Kind != store.SourcePeer:
			s.clashes[key] = fmt.Sprintf("this node has it from %s, and node %s claims this name too", have.Source, w.node)
		case known && have.Digest == w.res.Digest && have.Source == from:
		default:
			out = append(out, store.Op{Put: w.res, Source: from})
		}
	}
	return out
}

// apply applies operations to the store. Conflicts with other sources are skipped; the change of
// the store triggers a retry.
func (s *Source) apply(kind string, ops []store.Op) {
	if len(ops) == 0 {
		return
	}
	b := store.Batch{Source: store.Source{Kind: kind}, Ops: ops}
	_, err := s.o.Store.Apply(b)
	if err == nil || errors.Is(err, store.ErrClosed) {
		return
	}
	for _, op := range ops {
		b.Ops = []store.Op{op}
		if _, err := s.o.Store.Apply(b); err != nil {
			s.o.Log.Warn("a resource of the pool is refused", "error", err)
		}
	}
}

// retry checks resources that were not in force after a change of the store, for example when a
// file with precedence was removed.
func (s *Source) retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting)+len(s.clashes) == 0 {
		return
	}
	snap, names := s.o.Store.Snapshot(), s.names(s.node.Owned())
	var records []store.Op
	for key := range maps.Clone(s.waiting) {
		if op, ok := s.record(snap, engine.Key(key), names); ok {
			records = append(records, op)
		}
	}
	s.apply(store.SourceGossip, records)
	if len(s.clashes) > 0 {
		s.apply(store.SourcePeer, s.owned(snap, s.node.Owned()))
	}
}

// offer adds resources that operators wrote before this node joined a pool, unless the pool has
// them.
func (s *Source) offer() {
	snap := s.o.Store.Snapshot()
	var changes []store.Change
	for _, rec := range snap.BySource(store.SourceAPI) {
		if !ofNode(rec.Kind) && s.node.Record(engine.Key(rec.Key)) == nil {
			changes = append(changes,
				store.Change{Key: rec.Key, Revision: store.Revision{Source: rec.Source, Resource: rec.Resource}})
		}
	}
	if err := s.Share(changes); err != nil {
		s.o.Log.Warn("cannot add resources written before this node joined the pool", "resources", len(changes), "error", err)
	}
}

func (s *Source) pruned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agreed
}

// prune removes resources from the store that the pool no longer has. This happens if the pool's
// database was lost and deletions were missed.
func (s *Source) prune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agreed = true
	snap := s.o.Store.Snapshot()
	var gone []store.Op
	for _, rec := range snap.BySource(store.SourceGossip) {
		if s.node.Record(engine.Key(rec.Key)) == nil {
			gone = append(gone, store.Op{Delete: rec.Key, Source: rec.Source})
		}
	}
	s.apply(store.SourceGossip, gone)
	s.apply(store.SourcePeer, s.owned(snap, s.node.Owned()))
}

// publishOwn publishes the resources of this node if they have changed.
func (s *Source) publishOwn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return
	}
	var items []engine.OwnItem
	sum := sha256.New()
	for _, rec := range s.o.Store.Snapshot().Records() {
		if !ofNode(rec.Kind) || rec.Source.Kind == store.SourcePeer || rec.Source.Kind == store.SourceGossip {
			continue
		}
		body, err := resource.Marshal(rec.Resource)
		if err != nil {
			continue // cannot happen: the store has encoded it
		}
		items = append(items, engine.OwnItem{Key: engine.Key(rec.Key), Body: body})
		fmt.Fprintf(sum, "%q %x\n", rec.Key, rec.Digest)
	}
	for _, i := range slices.Concat(s.trustItems(), s.reachOwn()) {
		items = append(items, i)
		fmt.Fprintf(sum, "%q %x\n", i.Key, sha256.Sum256(i.Body))
	}
	now := [32]byte(sum.Sum(nil))
	if s.published && now == s.own {
		return
	}
	if s.ownErr = s.node.SetOwn(items); s.ownErr != nil {
		s.o.Log.Warn("cannot publish the resources of this node", "error", s.ownErr)
		return
	}
	s.published, s.own = true, now
}
