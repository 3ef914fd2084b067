// Package virtualip assigns virtual addresses to the services of a mesh. Nodes that know the same
// services assign the same addresses without communication, and an address does not change while
// its service exists. It is pure.
package virtualip

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Set holds the virtual addresses of one mesh: their owners, and recent owners that are gone. It
// is immutable. [Assigner.Assign] returns the addresses to pass to the next assignment in
// [Options.Known].
type Set struct {
	entries []*entry // sorted by owner; unchanged entries are shared with the next Set
	due     time.Time
	ranges  *Ranges // ranges that contain all addresses; nil if not checked yet
}

// Entry holds the addresses of one service. New ignores invalid addresses.
type Entry struct {
	Kind string // of the service; "" for a value of kuma.io/service
	Name string // name of its resource, or the value of kuma.io/service
	V4   netip.Addr
	V6   netip.Addr
	Gone time.Time // when the addresses of a removed service become free; zero while it exists
}

// Owner identifies an owner of addresses: a service by its kind and name. The kind of a value of
// kuma.io/service is "".
type Owner struct{ Kind, Name string }

// Compare orders owners by kind and name.
func (o Owner) Compare(p Owner) int {
	return cmp.Or(strings.Compare(o.Kind, p.Kind), strings.Compare(o.Name, p.Name))
}

// Family is an IP family, the index of [Addresses].
type Family int

// IP families.
const (
	V4 Family = iota
	V6
	families
)

// Addresses holds one address of each family. Either may be invalid.
type Addresses [families]netip.Addr

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return V4
	}
	return V6
}

type entry struct {
	owner Owner
	addr  Addresses
	gone  int64 // in Unix milliseconds; 0 while the service exists
}

// any reports whether the entry has an address.
func (e *entry) any() bool { return e.addr[V4].IsValid() || e.addr[V6].IsValid() }

// New returns the Set of entries in any order. If two entries have the same service, or two
// services the same address, the first one wins. A manipulated entry can therefore cost a service
// its address but never share one.
func New(list []Entry) *Set {
	m := &Set{entries: make([]*entry, 0, len(list))}
	taken := make(map[Owner]bool, len(list))
	at := make(map[netip.Addr]bool, 2*len(list))
	for _, e := range list {
		o := Owner{e.Kind, e.Name}
		if taken[o] {
			continue
		}
		taken[o] = true
		in := &entry{owner: o}
		if !e.Gone.IsZero() {
			in.gone = cmp.Or(e.Gone.UnixMilli(), 1)
		}
		for f, a := range [...]netip.Addr{e.V4, e.V6} {
			if a.IsValid() && familyOf(a) == Family(f) && a.Zone() == "" && !a.Is4In6() && !at[a] {
				at[a] = true
				in.addr[f] = a
			}
		}
		m.entries = append(m.entries, in)
	}
	slices.SortFunc(m.entries, func(a, b *entry) int { return a.owner.Compare(b.owner) })
	return m
}

// Len returns the number of services with an entry.
func (m *Set) Len() int {
	if m == nil {
		return 0
	}
	return len(m.entries)
}

// Entries returns all entries, sorted by kind and name.
func (m *Set) Entries() []Entry {
	if m == nil {
		return nil
	}
	out := make([]Entry, len(m.entries))
	for i, e := range m.entries {
		out[i] = e.public()
	}
	return out
}

func (e *entry) public() Entry {
	out := Entry{Kind: e.owner.Kind, Name: e.owner.Name, V4: e.addr[V4], V6: e.addr[V6]}
	if e.gone != 0 {
		out.Gone = time.UnixMilli(e.gone)
	}
	return out
}

// Changes returns the entries that differ from an earlier Set, and those of it whose owners have no
// entry. It is fast for entries that both share. Nil is the empty Set.
func (m *Set) Changes(earlier *Set) (changed, gone []Entry) {
	was, is := earlier.list(), m.list()
	for len(was) > 0 || len(is) > 0 {
		order := 0
		switch {
		case len(is) == 0:
			order = -1
		case len(was) == 0:
			order = 1
		case was[0] != is[0]:
			order = was[0].owner.Compare(is[0].owner)
		}
		if order < 0 {
			gone = append(gone, was[0].public())
		} else if order > 0 || *was[0] != *is[0] {
			changed = append(changed, is[0].public())
		}
		if order <= 0 {
			was = was[1:]
		}
		if order >= 0 {
			is = is[1:]
		}
	}
	return changed, gone
}

func (m *Set) list() []*entry {
	if m == nil {
		return nil
	}
	return m.entries
}

// Due returns the time when a reserved address becomes free; zero if none is reserved.
func (m *Set) Due() time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.due
}

// Release returns the Set after the mesh was removed: every address becomes free at the given
// time, unless it is due earlier. (A later due time comes from a clock that was ahead.) The result
// is nil if nothing remains at now.
func (m *Set) Release(now, free time.Time) *Set {
	if m == nil {
		return nil
	}
	out, changed := &Set{ranges: m.ranges}, false
	for _, e := range m.entries {
		if e.gone == 0 || e.gone > free.UnixMilli() {
			waits := *e
			waits.gone, changed = free.UnixMilli(), true
			e = &waits
		}
		if e.gone <= now.UnixMilli() {
			changed = true
			continue
		}
		out.entries = append(out.entries, e)
	}
	switch {
	case len(out.entries) == 0:
		return nil
	case !changed:
		return m
	}
	return out
}

// find returns the index of an owner, or the index at which to insert it.
func (m *Set) find(o Owner) (int, bool) {
	return slices.BinarySearchFunc(m.entries, o, func(e *entry, o Owner) int { return e.owner.Compare(o) })
}

// within returns the Set without addresses outside the ranges, which occur after the ranges were
// reconfigured. It returns m if there are none.
func (m *Set) within(ranges Ranges, pools map[string]*[families]pool) *Set {
	switch {
	case m == nil:
		return &Set{ranges: &ranges}
	case m.ranges != nil && *m.ranges == ranges:
		return m
	}
	out := &Set{entries: make([]*entry, 0, len(m.entries)), due: m.due, ranges: &ranges}
	for _, e := range m.entries {
		pool := pools[e.owner.Kind]
		if pool == nil {
			continue
		}
		for f := range families {
			if e.addr[f].IsValid() && !pool[f].holds(e.addr[f]) {
				without := *e
				without.addr[f] = netip.Addr{}
				e = &without
			}
		}
		if e.any() {
			out.entries = append(out.entries, e)
		}
	}
	return out
}
