package peers

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// kindAuthority is that of items with the authorities of a node, by mesh and backend; see
// [identity.Pool].
const kindAuthority = "NodeCA"

// trust is what is known of the authorities of builtin backends. Its fields, but for all, are
// guarded by the mu of the source.
type trust struct {
	own     map[resource.Key]*identity.Authorities // as others are told, those that were given up among them
	of      map[engine.NodeID]map[resource.Key]*identity.Authorities
	refused map[engine.NodeID]string // what is not taken of a node, and why
	all     atomic.Pointer[identity.Others]
}

// openTrust begins with what the last boot has told, so that others trust it until the meshes are
// known again.
func (s *Source) openTrust() {
	s.trust.own = map[resource.Key]*identity.Authorities{}
	s.trust.of = map[engine.NodeID]map[resource.Key]*identity.Authorities{}
	s.trust.refused = map[engine.NodeID]string{}
	s.trust.all.Store(identity.NewOthers(nil))
	for _, o := range s.node.Owned() {
		if o.Node == s.self {
			s.trust.own = s.authorities(&o)
		}
	}
}

// authorities reads those of a node.
func (s *Source) authorities(o *gossip.Owned) map[resource.Key]*identity.Authorities {
	out := map[resource.Key]*identity.Authorities{}
	delete(s.trust.refused, o.Node)
	for _, item := range o.Items {
		if item.Key.Kind != kindAuthority || item.Body == nil {
			continue
		}
		a, err := identity.ParseAuthorities(item.Key.Mesh, item.Key.Name, item.Body)
		if err != nil {
			s.trust.refused[o.Node] = fmt.Sprintf("that of node %s for mesh %s and backend %s: %v",
				cmp.Or(o.Name, o.Node.String()), item.Key.Mesh, item.Key.Name, err)
			continue
		}
		out[resource.Key(item.Key)] = a
	}
	return out
}

// takeTrust reads the authorities of nodes again. What a dead node has signed is still valid; that
// of one that was forgotten is not.
func (s *Source) takeTrust(all []gossip.Owned, nodes map[engine.NodeID]bool) {
	seen := map[engine.NodeID]bool{}
	for i := range all {
		o := &all[i]
		if o.Node == s.self {
			continue
		}
		seen[o.Node] = true
		if _, known := s.trust.of[o.Node]; nodes[o.Node] || !known {
			s.trust.of[o.Node] = s.authorities(o)
		}
	}
	maps.DeleteFunc(s.trust.refused, func(id engine.NodeID, _ string) bool { return !seen[id] })
	maps.DeleteFunc(s.trust.of, func(id engine.NodeID, _ map[resource.Key]*identity.Authorities) bool { return !seen[id] })
	var list []*identity.Authorities
	for _, of := range s.trust.of {
		list = append(list, slices.Collect(maps.Values(of))...)
	}
	if next := identity.NewOthers(list); !next.Equal(s.trust.all.Load()) {
		s.trust.all.Store(next)
		s.o.Changed()
	}
}

// Others implements [identity.Pool].
func (s *Source) Others() *identity.Others { return s.trust.all.Load() }

// Tell implements [identity.Pool]. Authorities that are not among the given ones stay trusted until
// the last certificate that they may have signed has ended.
func (s *Source) Tell(list []identity.Authorities) {
	s.mu.Lock()
	now := s.o.Now()
	next := map[resource.Key]*identity.Authorities{}
	for i := range list {
		a := &list[i]
		next[resource.Key{Kind: kindAuthority, Mesh: a.Mesh, Name: a.Backend}] = a
	}
	for key, a := range s.trust.own {
		if next[key] == nil {
			if a = givenUp(a, now); now.Before(a.Until) {
				next[key] = a
			}
		}
	}
	before := s.trustItems()
	s.trust.own = next
	changed := !slices.EqualFunc(before, s.trustItems(), func(a, b engine.OwnItem) bool {
		return a.Key == b.Key && bytes.Equal(a.Body, b.Body)
	})
	s.mu.Unlock()
	if changed {
		s.tellOwn()
	}
}

// givenUp returns authorities that sign nothing any more.
func givenUp(a *identity.Authorities, now time.Time) *identity.Authorities {
	if !a.Until.IsZero() {
		return a
	}
	out := *a
	out.Until = now.Add(a.Life)
	return &out
}

// Told implements [identity.Pool].
func (s *Source) Told() (others, without int) {
	for _, m := range s.node.Members() {
		if m.Self || m.State != gossip.StateAlive {
			continue
		}
		others++
		if !m.Agrees {
			without++
		}
	}
	return others, without
}

// trustItems are the authorities of this node for others, sorted.
func (s *Source) trustItems() (out []engine.OwnItem) {
	for _, key := range slices.SortedFunc(maps.Keys(s.trust.own), compareKeys) {
		if body, err := s.trust.own[key].Encode(); err == nil { // it always is encoded
			out = append(out, engine.OwnItem{Key: engine.Key(key), Body: body})
		}
	}
	return out
}
