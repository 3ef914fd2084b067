package mesh

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// claim is a service whose addresses are not simply those that it had.
type claim struct {
	owner    serviceKey
	from, to int // its ports in View.services
	entry    int // in the memory, -1 for none
	addr     [families]netip.Addr
}

// fate is what becomes of an entry of the memory.
type fate uint8

const (
	missed  fate = iota // its service is not there
	kept                // the service has what it had
	claimed             // a claim decides
	freed
)

// vipAssigner gives the services of one view their addresses.
type vipAssigner struct {
	v      *View
	o      *VIPOptions
	pools  map[string]*[families]vipPool
	known  *VIPs
	fates  []fate                    // of the entries of known
	claims []claim                   // in the order of services
	pins   map[netip.Addr]serviceKey // who has which address by its status
	held   []*vipEntry               // of services that went and may come back, sorted by owner
	dirty  bool                      // the memory changes
	due    time.Time
}

// assignVIPs gives every service its virtual addresses. In this order counts: what its status says; what it had, as the
// memory has it; and for a newcomer the first free one of a row that a hash of its name begins, so that nodes agree
// without talking. Newcomers of one view choose in the order of their names. What a service has never moves but when a
// status says so, and what one that went had stays its own for a while.
func (v *View) assignVIPs(o *VIPOptions) {
	a := &vipAssigner{v: v, o: o, pools: o.pools()}
	a.known = o.Known.within(o.Ranges, a.pools)
	a.dirty = a.known != o.Known
	a.fates = make([]fate, len(a.known.entries))
	a.enumerate(slices.ContainsFunc(v.services, func(s *Service) bool { return s.ID.Kind != KindTag && len(s.claimed) > 0 }))
	a.pins = a.pinAddresses()
	a.holdAddresses()
	a.choose(a.keepAddresses())
	for i := range a.claims {
		c := &a.claims[i]
		for _, s := range v.services[c.from:c.to] {
			s.VIP, s.VIP6 = c.addr[v4], c.addr[v6]
		}
	}
	v.IPv6, v.vips = o.IPv6, a.remember()
}

// enumerate gives services what they had, and lists the others. With all it lists every service, as it has to when
// a status can take an address from anyone.
func (a *vipAssigner) enumerate(all bool) {
	if n := len(a.v.services) - len(a.known.entries); all || n > 0 {
		a.claims = make([]claim, 0, max(n, 0)+16)
	}
	at := 0 // services and memory are sorted nearly alike
	for from, to := 0, 0; from < len(a.v.services); from = to {
		s := a.v.services[from]
		o := s.key()
		to = from + 1
		for s.ID.Kind != KindTag && to < len(a.v.services) && a.v.services[to].key() == o {
			to++
		}
		found := at < len(a.known.entries) && a.known.entries[at].owner == o
		if !found {
			at, found = a.known.find(o)
		}
		if !found {
			a.claims = append(a.claims, claim{owner: o, from: from, to: to, entry: -1})
			continue
		}
		e := a.known.entries[at]
		if all || e.gone != 0 || !e.addr[v4].IsValid() || !e.addr[v6].IsValid() {
			a.fates[at] = claimed
			a.claims = append(a.claims, claim{owner: o, from: from, to: to, entry: at})
		} else {
			a.fates[at] = kept
			for ; from < to; from++ {
				a.v.services[from].VIP, a.v.services[from].VIP6 = e.addr[v4], e.addr[v6]
			}
		}
		at++
	}
}

// had is the address that the memory has for a claim; invalid when there is none.
func (a *vipAssigner) had(c *claim, f family) netip.Addr {
	if c.entry < 0 {
		return netip.Addr{}
	}
	return a.known.entries[c.entry].addr[f]
}

// holdAddresses finds the addresses that wait for services that went to come back.
func (a *vipAssigner) holdAddresses() {
	now, latest := a.o.Now.UnixMilli(), a.o.Now.Add(a.o.Hold).UnixMilli()
	for i, how := range a.fates {
		if how != missed {
			continue
		}
		a.fates[i] = freed
		e := *a.known.entries[i]
		if e.gone == 0 || e.gone > latest { // later than that is of a clock that was ahead
			e.gone = latest
		}
		for f := range families {
			if _, pinned := a.pins[e.addr[f]]; pinned {
				e.addr[f] = netip.Addr{}
			}
		}
		if e.gone > now && (e.addr[v4].IsValid() || e.addr[v6].IsValid()) {
			a.held = append(a.held, &e)
			a.dirty = a.dirty || e != *a.known.entries[i]
		} else {
			a.dirty = true
		}
	}
}

// keepAddresses leaves services what they have, and returns those that lack an address, sorted.
func (a *vipAssigner) keepAddresses() (fresh [families][]*claim) {
	for i := range a.claims {
		c := &a.claims[i]
		for f := range families {
			if c.addr[f].IsValid() {
				continue
			}
			had := a.had(c, f)
			if by, ok := a.pins[had]; ok && by != c.owner {
				a.v.warnf(a.key(c), "its virtual address %s is that of %s %q by its status: it gets another one", had, by.kind, by.name)
				had = netip.Addr{}
			}
			if c.addr[f] = had; !had.IsValid() {
				fresh[f] = append(fresh[f], c)
			}
		}
	}
	for f := range families {
		slices.SortFunc(fresh[f], func(x, y *claim) int { return x.owner.compare(y.owner) })
	}
	return fresh
}

// key is the resource that a warning about a claim is about: of a tag service it is the mesh.
func (a *vipAssigner) key(c *claim) resource.Key {
	if k := a.v.services[c.from].Resource; k != (resource.Key{}) {
		return k
	}
	return a.v.mesh.Key
}

// remember returns the memory of the view.
func (a *vipAssigner) remember() *VIPs {
	var others []*vipEntry // beside those that were kept
	for i := range a.claims {
		c := &a.claims[i]
		e := &vipEntry{owner: c.owner}
		for f := range families {
			if a.pools[c.owner.kind][f].holds(c.addr[f]) {
				e.addr[f] = c.addr[f]
			}
		}
		has := e.addr[v4].IsValid() || e.addr[v6].IsValid()
		a.dirty = a.dirty || c.entry < 0 && has || c.entry >= 0 && *e != *a.known.entries[c.entry]
		if has {
			others = append(others, e)
		}
	}
	if !a.dirty && a.due.Equal(a.known.due) {
		return a.known
	}
	others = append(others, a.held...)
	slices.SortFunc(others, func(x, y *vipEntry) int { return x.owner.compare(y.owner) })
	next := &VIPs{entries: make([]*vipEntry, 0, len(a.known.entries)+len(others)), due: a.due, ranges: a.o.Ranges, checked: true}
	from := 0
	for i, e := range others {
		if i > 0 && others[i-1].owner == e.owner {
			continue
		}
		to, _ := a.known.find(e.owner)
		next.entries = append(a.appendKept(next.entries, from, to), e)
		from = to
	}
	next.entries = a.appendKept(next.entries, from, len(a.known.entries))
	return next
}

// appendKept appends the entries of a part of the memory that were kept.
func (a *vipAssigner) appendKept(out []*vipEntry, from, to int) []*vipEntry {
	for from < to {
		n := from
		for n < to && a.fates[n] == kept {
			n++
		}
		out = append(out, a.known.entries[from:n]...)
		from = n + 1
	}
	return out
}
