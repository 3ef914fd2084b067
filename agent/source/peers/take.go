package peers

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// take applies changes of the pool to the store.
func (s *Source) take(changes []engine.Change, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes, dirs := map[engine.NodeID]bool{}, map[engine.NodeID]bool{}
	var records []store.Op
	var merged []*engine.Record
	var came []time.Time
	trusted, healed := false, first
	for _, c := range changes {
		trusted = trusted || trust.Reserved(c.Key.Kind)
		healed = healed || c.Key.Kind == trust.KindHeal
		switch r := s.node.Record(c.Key); {
		case c.Directory:
			dirs[c.Node] = true
		case c.Node != (engine.NodeID{}):
			nodes[c.Node] = true
		case first: // the store has supplied the records
		case r == nil:
			records = append(records, store.Op{Delete: resource.Key(c.Key), Drop: true})
		default:
			records, merged = append(records, s.o.Store.Merge(r)), append(merged, r)
			if !s.wrote(r) {
				came = append(came, r.HLC.Time())
			}
		}
	}
	if healed {
		s.takeHeals()
	}
	s.logReturned(merged)
	s.apply(store.SourceGossip, records)
	for _, at := range came {
		if s.o.Converged != nil {
			s.o.Converged(max(s.o.Now().Sub(at), 0))
		}
	}
	if trusted && !first && s.takeTrustRecords() {
		s.retakeAll(nodes, dirs)
		return
	}
	if len(nodes) > 0 || first {
		all := s.node.Owners()
		s.takeOwned(all, nodes, first)
		s.takeTrust(all, nodes)
	}
	s.takeDirectories(dirs, len(nodes) > 0, first)
}

// wrote reports whether this node wrote a record.
func (s *Source) wrote(r *engine.Record) bool {
	self := s.node.Self()
	return [8]byte(r.Writer) == [8]byte(self[:8])
}

// writers returns the names of nodes, by the writer ID used in records.
func (s *Source) writers() map[[8]byte]string {
	out := map[[8]byte]string{}
	for _, o := range s.node.Owners() {
		out[[8]byte(o.Node[:8])] = o.Name
	}
	for _, m := range s.node.Members() {
		if m.Name != "" { // a node of the roster that was not seen since the start has none
			out[[8]byte(m.Node[:8])] = m.Name
		}
	}
	return out
}

// unnamed returns a placeholder for a node whose name is unknown.
func unnamed(writer [8]byte) string { return fmt.Sprintf("%x", writer) }

// takeOwned applies the resources that nodes own to the store: those of changed nodes, or of all
// nodes at the start. Its cost depends on the number of their resources.
func (s *Source) takeOwned(all []gossip.Owned, nodes map[engine.NodeID]bool, first bool) {
	changed := s.takeReach(all, nodes)
	maps.Copy(changed, nodes)
	for i := range all {
		if id := all[i].Node; first || s.names[id] != all[i].Name {
			changed[id] = true
		}
	}
	dirty := map[resource.Key]bool{}
	for id := range changed {
		if id == s.node.Self() {
			continue
		}
		s.readmit(id)
		next := map[resource.Key]*resource.Resource(nil)
		o, ok := s.node.OwnedBy(id)
		if ok {
			next = s.serving(&o)
		}
		s.takeFiles(id, o.Items)
		s.takeAnnouncements(id, o.Items)
		for key := range s.peers[id] {
			dirty[key] = true
			if next[key] == nil {
				s.unclaim(key, id)
			}
		}
		for key := range next {
			dirty[key] = true
			if at, found := slices.BinarySearchFunc(s.claims[key], id, compareNodes); !found {
				s.claims[key] = slices.Insert(s.claims[key], at, id)
			}
		}
		s.peers[id], s.names[id], s.signers[id] = next, cmp.Or(o.Name, id.String()), o.Signer
		if !ok {
			delete(s.peers, id)
			delete(s.names, id)
			delete(s.signers, id)
		}
	}
	if first {
		for _, rec := range s.o.Store.Snapshot().BySource(store.SourcePeer) {
			dirty[rec.Key] = true
		}
	}
	s.resolveClaims(dirty)
}

// unclaim removes a node from the claims of a key.
func (s *Source) unclaim(key resource.Key, id engine.NodeID) {
	left := slices.DeleteFunc(s.claims[key], func(x engine.NodeID) bool { return x == id })
	if s.claims[key] = left; len(left) == 0 {
		delete(s.claims, key)
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
		if s.exclude(o.Node, item.Key, s.beyondEnrollment(o.Node, r)) {
			continue
		}
		out[key] = r
	}
	return out
}

// resolveClaims applies the resources that nodes claim to the store, for some keys. If several
// nodes claim a key, the one with the lowest ID wins, and a local resource always wins.
func (s *Source) resolveClaims(keys map[resource.Key]bool) {
	snap := s.o.Store.Snapshot()
	var ops []store.Op
	for key := range maps.Clone(keys) {
		if key.Kind == "Dataplane" {
			keys[resource.EndpointStateOf(key)] = true
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), resource.Key.Compare) {
		delete(s.clashes, key)
		have, known := snap.Get(key)
		if key.Kind == resource.KindEndpointState {
			ops = append(ops, s.resolveState(snap, key)...)
			continue
		}
		claims := s.claims[key]
		if len(claims) == 0 {
			if known && have.Source.Kind == store.SourcePeer {
				ops = append(ops, store.Op{Delete: key, Source: have.Source})
			}
			continue
		}
		node, r := s.names[claims[0]], s.peers[claims[0]][key]
		if len(claims) > 1 {
			s.clashes[key] = fmt.Sprintf("nodes %s and %s both claim this name; that of %[2]s is used", s.names[claims[1]], node)
		}
		from := store.Source{Kind: store.SourcePeer, Detail: node}
		signer := s.signers[claims[0]]
		switch {
		case known && have.Source.Kind != store.SourcePeer:
			s.clashes[key] = fmt.Sprintf("this node has it from %s, and node %s claims this name too", have.Source, node)
		case known && have.Digest == r.Digest && have.Source == from && have.Signer == signer:
		default:
			ops = append(ops, store.Op{Put: r, Source: from, Author: node, Signer: signer})
		}
	}
	s.apply(store.SourcePeer, ops)
}

// resolveState returns the change that brings the state of a Dataplane in force that its owner
// publishes. States of other nodes do not count.
func (s *Source) resolveState(snap *store.Snapshot, key resource.Key) []store.Op {
	dataplane := resource.Key{Kind: "Dataplane", Mesh: key.Mesh, Name: key.Name}
	owner, owned := snap.Get(dataplane)
	have, known := snap.Get(key)
	if owned && owner.Source.Kind != store.SourcePeer {
		return nil // this node, which overwrites what another one has published
	}
	var r *resource.Resource
	var from store.Source
	if claims := s.claims[dataplane]; len(claims) > 0 {
		r, from = s.peers[claims[0]][key], store.Source{Kind: store.SourcePeer, Detail: s.names[claims[0]]}
	}
	switch {
	case r == nil && known && have.Source.Kind == store.SourcePeer:
		return []store.Op{{Delete: key, Source: have.Source}}
	case r == nil || known && have.Digest == r.Digest && have.Source == from:
		return nil
	}
	return []store.Op{{Put: r, Source: from, Author: from.Detail}}
}

// apply applies operations to the store. It skips and logs conflicts with other sources.
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

// retry applies resources of other nodes again that clashed with others before a change of the
// store, or that the change replaced or removed.
func (s *Source) retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := s.touched
	s.touched = map[resource.Key]bool{}
	for key := range s.clashes {
		keys[key] = true
	}
	s.resolveClaims(keys)
}

// publishOwn publishes the resources of this node if they have changed. Its cost depends on the
// number of changes in the store, and on the number of own items if one of them has changed.
func (s *Source) publishOwn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return
	}
	s.readOwn()
	items := slices.Concat(s.trustItems(), s.reachOwn(), s.filesOwn(), s.announcements())
	sum := sha256.New()
	fmt.Fprintln(sum, s.ownChanges)
	for _, i := range items {
		fmt.Fprintf(sum, "%q %x\n", i.Key, sha256.Sum256(i.Body))
	}
	now := [32]byte(sum.Sum(nil))
	if s.published && now == s.own {
		return
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.ownItems), resource.Key.Compare) {
		items = append(items, s.ownItems[key])
	}
	if s.ownErr = s.node.SetOwn(items); s.ownErr != nil {
		s.o.Log.Warn("cannot publish the resources of this node", "error", s.ownErr)
		return
	}
	s.published, s.own = true, now
}

// readOwn updates the items with this node's resources after a change of the store.
func (s *Source) readOwn() {
	snap := s.o.Store.Snapshot()
	for _, key := range snap.Diff(s.local) {
		rec, ok := snap.Get(key)
		s.files.set(key, &rec)
		if !ofNode(key.Kind) {
			continue
		}
		if len(s.claims[key]) > 0 || len(s.claims[resource.EndpointStateOf(key)]) > 0 {
			s.touched[key] = true
		}
		var body []byte
		if ok && rec.Source.Kind != store.SourcePeer && rec.Source.Kind != store.SourceGossip {
			body, _ = resource.Marshal(rec.Resource) // never fails: the store has encoded it
		}
		if bytes.Equal(body, s.ownItems[key].Body) {
			continue
		}
		if s.ownChanges++; body == nil {
			delete(s.ownItems, key)
		} else {
			s.ownItems[key] = engine.OwnItem{Key: engine.Key(key), Body: body}
		}
	}
	s.local = snap
}
