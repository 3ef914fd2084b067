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

// kindAuthority is the kind of items with a node's authorities, by mesh and backend; see
// [identity.Pool].
const kindAuthority = "NodeCA"

// authorities is the state of the authorities of builtin backends. Its fields, except all, are
// guarded by the mu of the source.
type authorities struct {
	own     map[resource.Key]*identity.Authorities // as published, including retired ones
	of      map[engine.NodeID]map[resource.Key]*identity.Authorities
	refused map[engine.NodeID]string // why an authority of a node was refused
	all     atomic.Pointer[identity.Others]
}

// openTrust starts with the authorities published before the restart, so others trust them until
// the meshes are known again.
func (s *Source) openTrust() {
	s.trust.own = map[resource.Key]*identity.Authorities{}
	s.trust.of = map[engine.NodeID]map[resource.Key]*identity.Authorities{}
	s.trust.refused = map[engine.NodeID]string{}
	s.trust.all.Store(identity.NewOthers(nil))
	if o, ok := s.node.OwnedBy(s.node.Self()); ok {
		s.trust.own = s.authorities(&o)
	}
}

// authorities returns the valid authorities of a node.
func (s *Source) authorities(o *gossip.Owned) map[resource.Key]*identity.Authorities {
	out := map[resource.Key]*identity.Authorities{}
	delete(s.trust.refused, o.Node)
	for _, item := range o.Items {
		if item.Key.Kind != kindAuthority || item.Body == nil {
			continue
		}
		a, err := identity.ParseAuthorities(item.Key.Mesh, item.Key.Name, item.Body)
		if err != nil {
			s.trust.refused[o.Node] = fmt.Sprintf("authority of node %s for mesh %s and backend %s: %v",
				cmp.Or(o.Name, o.Node.String()), item.Key.Mesh, item.Key.Name, err)
			continue
		}
		if e := s.policy.State().Enrollment(o.Node); e != nil && s.exclude(o.Node, item.Key, e.AllowsMesh(item.Key.Mesh)) {
			continue
		}
		out[resource.Key(item.Key)] = a
	}
	return out
}

// takeTrust updates the authorities of nodes. Certificates of a dead node stay valid; those of a
// forgotten node do not.
func (s *Source) takeTrust(all []gossip.Owned, nodes map[engine.NodeID]bool) {
	seen := map[engine.NodeID]bool{}
	for i := range all {
		o := &all[i]
		if o.Node == s.node.Self() {
			continue
		}
		seen[o.Node] = true
		if _, known := s.trust.of[o.Node]; nodes[o.Node] || !known {
			if full, ok := s.node.OwnedBy(o.Node); ok {
				s.trust.of[o.Node] = s.authorities(&full)
			}
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

// Tell implements [identity.Pool]. Authorities that are not listed stay trusted until the last
// certificate that they may have signed has expired.
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
			if a = retired(a, now); now.Before(a.Until) {
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
		s.publishOwn()
	}
}

// retired returns authorities that sign no further certificates.
func retired(a *identity.Authorities, now time.Time) *identity.Authorities {
	if !a.Until.IsZero() {
		return a
	}
	out := *a
	out.Until = now.Add(a.Life)
	return &out
}

// Announced implements [identity.Pool].
func (s *Source) Announced() (others, without int) {
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

// trustItems returns the items with this node's authorities, sorted.
func (s *Source) trustItems() (out []engine.OwnItem) {
	for _, key := range slices.SortedFunc(maps.Keys(s.trust.own), resource.Key.Compare) {
		if body, err := s.trust.own[key].Encode(); err == nil { // encoding never fails
			out = append(out, engine.OwnItem{Key: engine.Key(key), Body: body})
		}
	}
	return out
}
