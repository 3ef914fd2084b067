package mesh

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// VIPs holds the virtual addresses of one mesh: their owners, and recent owners that are gone. It
// is immutable. [View.VIPs] returns the addresses after a view was built; pass them to the next
// view in [VIPOptions.Known].
type VIPs struct {
	entries []*vipEntry // sorted by owner; unchanged entries are shared with the next VIPs
	due     time.Time
	ranges  *VIPRanges // ranges that contain all addresses; nil if not checked yet
}

// VIPEntry holds the addresses of one service. NewVIPs ignores invalid addresses.
type VIPEntry struct {
	Kind string // of the service: KindTag …
	Name string // name of its resource, or the value of kuma.io/service
	V4   netip.Addr
	V6   netip.Addr
	Gone time.Time // when the addresses of a removed service become free; zero while it exists
}

// family is an IP family.
type family int

const (
	v4 family = iota
	v6
	families
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return v4
	}
	return v6
}

type vipEntry struct {
	owner serviceKey
	addr  [families]netip.Addr
	gone  int64 // in Unix milliseconds; 0 while the service exists
}

// any reports whether the entry has an address.
func (e *vipEntry) any() bool { return e.addr[v4].IsValid() || e.addr[v6].IsValid() }

// NewVIPs returns the VIPs of entries in any order. If two entries have the same service, or two
// services the same address, the first one wins. A manipulated entry can therefore cost a service
// its address but never share one.
func NewVIPs(list []VIPEntry) *VIPs {
	m := &VIPs{entries: make([]*vipEntry, 0, len(list))}
	taken := make(map[serviceKey]bool, len(list))
	at := make(map[netip.Addr]bool, 2*len(list))
	for _, e := range list {
		o := serviceKey{e.Kind, e.Name}
		if taken[o] {
			continue
		}
		taken[o] = true
		in := &vipEntry{owner: o}
		if !e.Gone.IsZero() {
			in.gone = cmp.Or(e.Gone.UnixMilli(), 1)
		}
		for f, a := range [families]netip.Addr{e.V4, e.V6} {
			if a.IsValid() && familyOf(a) == family(f) && a.Zone() == "" && !a.Is4In6() && !at[a] {
				at[a] = true
				in.addr[f] = a
			}
		}
		m.entries = append(m.entries, in)
	}
	slices.SortFunc(m.entries, func(a, b *vipEntry) int { return a.owner.compare(b.owner) })
	return m
}

// Len returns the number of services with an entry.
func (m *VIPs) Len() int {
	if m == nil {
		return 0
	}
	return len(m.entries)
}

// Entries returns all entries, sorted by kind and name.
func (m *VIPs) Entries() []VIPEntry {
	if m == nil {
		return nil
	}
	out := make([]VIPEntry, len(m.entries))
	for i, e := range m.entries {
		out[i] = VIPEntry{Kind: e.owner.kind, Name: e.owner.name, V4: e.addr[v4], V6: e.addr[v6]}
		if e.gone != 0 {
			out[i].Gone = time.UnixMilli(e.gone)
		}
	}
	return out
}

// Due returns the time when a reserved address becomes free; zero if none is reserved.
func (m *VIPs) Due() time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.due
}

// Release returns the VIPs after the mesh was removed: every address becomes free at the given
// time, unless it is due earlier. (A later due time comes from a clock that was ahead.) The result
// is nil if nothing remains at now.
func (m *VIPs) Release(now, free time.Time) *VIPs {
	if m == nil {
		return nil
	}
	out, changed := &VIPs{ranges: m.ranges}, false
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
func (m *VIPs) find(o serviceKey) (int, bool) {
	return slices.BinarySearchFunc(m.entries, o, func(e *vipEntry, o serviceKey) int { return e.owner.compare(o) })
}

// within returns the VIPs without addresses outside the ranges, which occur after the ranges were
// reconfigured. It returns m if there are none.
func (m *VIPs) within(ranges VIPRanges, pools map[string]*[families]vipPool) *VIPs {
	switch {
	case m == nil:
		return &VIPs{ranges: &ranges}
	case m.ranges != nil && *m.ranges == ranges:
		return m
	}
	out := &VIPs{entries: make([]*vipEntry, 0, len(m.entries)), due: m.due, ranges: &ranges}
	for _, e := range m.entries {
		pool := pools[e.owner.kind]
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
