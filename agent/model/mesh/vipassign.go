package mesh

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// claim is a service whose addresses are not simply those that it had.
type claim struct {
	owner serviceKey
	ports []*Service   // none for a host or a domain
	host  *virtualHost // nil for others
	entry int          // in the memory, -1 for none
	addr  [families]netip.Addr
}

// entryState is what a view does with an entry of the memory.
type entryState uint8

const (
	entryAbsent  entryState = iota // no service of the view has it
	entryClaimed                   // a claim decides
	entryShared                    // the service has these addresses, and the next memory has this entry
)

// vipAssigner gives the services of one view their addresses.
type vipAssigner struct {
	v       *View
	o       *VIPOptions
	pools   map[string]*[families]vipPool
	known   *VIPs
	states  []entryState              // of the entries of known
	claims  []claim                   // in the order of services
	pins    map[netip.Addr]serviceKey // who has which address by its status
	waiting []*vipEntry               // of services that are gone and may come back, sorted by owner
	changed bool                      // the memory changes
	due     time.Time
}

// assignVIPs gives every service its virtual addresses. In this order counts: what its status says;
// what it had, as the memory has it; and for a newcomer the first free one of a row that a hash of
// its name begins, so that nodes agree without talking. Newcomers of one view choose in the order
// of their names. What a service has never moves but when a status says so, and the addresses of a
// service that is gone wait for it for a while.
func (v *View) assignVIPs(o *VIPOptions) {
	a := &vipAssigner{v: v, o: o, pools: o.pools(), pins: map[netip.Addr]serviceKey{}}
	a.known = o.Known.within(o.Ranges, a.pools)
	a.changed = a.known != o.Known
	a.states = make([]entryState, len(a.known.entries))
	a.enumerate(slices.ContainsFunc(v.services, func(s *Service) bool {
		return s.ID.Kind != KindTag && len(s.claimed) > 0
	}))
	a.hosts()
	a.outside(o.Domains)
	a.pin()
	a.wait()
	for f, list := range a.newcomers() {
		v.Unaddressed = v.Unaddressed || o.Fixed && len(list) > 0
		if o.Fixed && len(list) > 0 && family(f) == v4 {
			v.warnf(v.mesh.Key, "services without a virtual address: %d, the first is %s %q; "+
				"they get theirs when the state disk has taken it", len(list), kindName(list[0].owner.kind), list[0].owner.name)
		}
		for len(list) > 0 && !o.Fixed {
			n := 1
			for n < len(list) && list[n].owner.kind == list[0].owner.kind {
				n++
			}
			a.choose(family(f), list[:n])
			list = list[n:]
		}
	}
	for i := range a.claims {
		c := &a.claims[i]
		for _, s := range c.ports {
			s.VIP, s.VIP6 = c.addr[v4], c.addr[v6]
		}
		switch {
		case c.host != nil:
			c.host.addr = c.addr
		case len(c.ports) == 0:
			v.domains = append(v.domains, domain{o.Domains[len(v.domains)], c.addr})
		}
	}
	v.IPv6, v.vips = o.IPv6 || v.someIPv6(), a.remember()
}

// enumerate gives services what they had, and lists the others. With all it lists every service, as
// it has to when a status can take an address from anyone.
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
		ports := a.v.services[from:to]
		found := at < len(a.known.entries) && a.known.entries[at].owner == o
		if !found {
			at, found = a.known.find(o)
		}
		if !found {
			a.claims = append(a.claims, claim{owner: o, ports: ports, entry: -1})
			continue
		}
		e := a.known.entries[at]
		if all || e.gone != 0 || !e.addr[v4].IsValid() || !e.addr[v6].IsValid() {
			a.states[at] = entryClaimed
			a.claims = append(a.claims, claim{owner: o, ports: ports, entry: at})
		} else {
			a.states[at] = entryShared
			for _, s := range ports {
				s.VIP, s.VIP6 = e.addr[v4], e.addr[v6]
			}
		}
		at++
	}
}

// hosts lists the names that VirtualOutbounds make, behind all services.
func (a *vipAssigner) hosts() {
	for i := range a.v.hosts {
		h := &a.v.hosts[i]
		a.named(claim{owner: hostKey(h.name), host: h})
	}
}

// named adds a claim that is no service.
func (a *vipAssigner) named(c claim) {
	c.entry = -1
	if at, ok := a.known.find(c.owner); ok {
		c.entry, a.states[at] = at, entryClaimed
	}
	a.claims = append(a.claims, c)
}

// outside lists names outside of the mesh, behind all services.
func (a *vipAssigner) outside(domains []string) {
	for _, name := range domains {
		a.named(claim{owner: domainKey(name)})
	}
}

// had is the address that the memory has for a claim; invalid when there is none.
func (a *vipAssigner) had(c *claim, f family) netip.Addr {
	if c.entry < 0 {
		return netip.Addr{}
	}
	return a.known.entries[c.entry].addr[f]
}

// warnf warns about a claim: the resource of a tag service is the mesh.
func (a *vipAssigner) warnf(c *claim, format string, args ...any) {
	k := a.v.mesh.Key
	if len(c.ports) > 0 && c.ports[0].Resource != (resource.Key{}) {
		k = c.ports[0].Resource
	}
	a.v.warnf(k, format, args...)
}

// wait finds the addresses that wait for services that are gone to come back.
func (a *vipAssigner) wait() {
	now, latest := a.o.Now.UnixMilli(), a.o.Now.Add(a.o.Hold).UnixMilli()
	for i, state := range a.states {
		if state != entryAbsent {
			continue
		}
		e := *a.known.entries[i]
		if e.gone == 0 || e.gone > latest { // later than that is of a clock that was ahead
			e.gone = latest
		}
		for f := range families {
			if _, pinned := a.pins[e.addr[f]]; pinned {
				e.addr[f] = netip.Addr{}
			}
		}
		waits := e.gone > now && e.any()
		if waits {
			a.waiting = append(a.waiting, &e)
		}
		a.changed = a.changed || !waits || e != *a.known.entries[i]
	}
}

// newcomers leaves services what they have, and returns those that lack an address, sorted.
func (a *vipAssigner) newcomers() (out [families][]*claim) {
	for i := range a.claims {
		c := &a.claims[i]
		for f := range families {
			if c.addr[f].IsValid() {
				continue
			}
			had := a.had(c, f)
			if by, ok := a.pins[had]; ok && by != c.owner {
				a.warnf(c, "its virtual address %s is in the status of %s %q, which takes precedence: it gets another address",
					had, by.kind, by.name)
				had = netip.Addr{}
			}
			if c.addr[f] = had; !had.IsValid() {
				out[f] = append(out[f], c)
			}
		}
	}
	for f := range families {
		slices.SortFunc(out[f], func(x, y *claim) int { return x.owner.compare(y.owner) })
	}
	return out
}

// choose gives addresses to newcomers of one kind.
func (a *vipAssigner) choose(f family, newcomers []*claim) {
	kind := newcomers[0].owner.kind
	pool := &a.pools[kind][f]
	n, all := 0, a.taken(kind, f)
	for range all {
		n++
	}
	taken := takenVIPs{all: all, size: n + len(newcomers)}
	var without []*claim
	for i, c := range newcomers {
		if i > 0 && newcomers[i-1].owner == c.owner {
			c.addr[f] = newcomers[i-1].addr[f]
			continue
		}
		if n < pool.size() {
			p := pool.probe(a.v.Name, c.owner)
			for range min(pool.size(), maxProbes) {
				if addr := pool.at(p.slot); !taken.has(addr) {
					c.addr[f] = addr
					taken.add(addr)
					n++
					break
				}
				p.next()
			}
		}
		if !c.addr[f].IsValid() {
			without = append(without, c)
		}
	}
	if len(without) == 0 {
		return
	}
	waiting := 0
	for _, e := range a.waiting {
		if e.owner.kind == kind && e.addr[f].IsValid() {
			waiting++
			if gone := time.UnixMilli(e.gone); a.due.IsZero() || gone.Before(a.due) {
				a.due = gone
			}
		}
	}
	a.v.warnf(a.v.mesh.Key, "the range %s of virtual addresses is full: %d services have no address in it, the first "+
		"is %s %q; %d addresses are reserved for services that are gone; widen the range in vips of the agent's config",
		pool.prefix, len(without), kindName(kind), without[0].owner.name, waiting)
}

// taken goes through the addresses of the pool of a kind that some service has, or that wait for
// one.
func (a *vipAssigner) taken(kind string, f family) iter.Seq[netip.Addr] {
	from, _ := a.known.find(serviceKey{kind: kind})
	to, _ := a.known.find(serviceKey{kind: kind + "\x00"})
	return func(yield func(netip.Addr) bool) {
		for i, e := range a.known.entries[from:to] {
			if a.states[from+i] == entryShared && !yield(e.addr[f]) {
				return
			}
		}
		for i := range a.claims { // of another kind too: a status is free to say any address
			if addr := a.claims[i].addr[f]; a.pools[kind][f].holds(addr) && !yield(addr) {
				return
			}
		}
		for _, e := range a.waiting {
			if e.owner.kind == kind && e.addr[f].IsValid() && !yield(e.addr[f]) {
				return
			}
		}
	}
}

// takenVIPs answers which addresses of a pool are taken. A few questions are answered by looking
// through all; a set is made when there are more.
type takenVIPs struct {
	all   iter.Seq[netip.Addr]
	size  int // how many are taken in the end, at most
	asked int
	set   map[netip.Addr]bool
}

// maxLookThrough is how many questions are answered without a set.
const maxLookThrough = 6

func (t *takenVIPs) has(addr netip.Addr) bool {
	if t.asked++; t.asked <= maxLookThrough {
		return t.lookThrough(addr)
	}
	if t.set == nil {
		t.set = make(map[netip.Addr]bool, t.size)
		for other := range t.all {
			t.set[other] = true
		}
	}
	return t.set[addr]
}

func (t *takenVIPs) lookThrough(addr netip.Addr) bool {
	for other := range t.all {
		if other == addr {
			return true
		}
	}
	return false
}

func (t *takenVIPs) add(addr netip.Addr) {
	if t.set != nil {
		t.set[addr] = true
	}
}

// remember returns the memory of the view.
func (a *vipAssigner) remember() *VIPs {
	changed := a.waiting // entries that are not shared
	for i := range a.claims {
		c := &a.claims[i]
		e := &vipEntry{owner: c.owner}
		for f := range families {
			if a.pools[c.owner.kind][f].holds(c.addr[f]) {
				e.addr[f] = c.addr[f]
			}
		}
		a.changed = a.changed || c.entry < 0 && e.any() || c.entry >= 0 && *e != *a.known.entries[c.entry]
		if e.any() {
			changed = append(changed, e)
		}
	}
	if !a.changed && a.due.Equal(a.known.due) {
		return a.known
	}
	slices.SortFunc(changed, func(x, y *vipEntry) int { return x.owner.compare(y.owner) })
	changed = slices.CompactFunc(changed, func(x, y *vipEntry) bool { return x.owner == y.owner })
	next := &VIPs{entries: make([]*vipEntry, 0, len(a.known.entries)+len(changed)), due: a.due, ranges: a.known.ranges}
	from := 0
	for i := range len(changed) + 1 {
		to := len(a.known.entries)
		if i < len(changed) {
			to, _ = a.known.find(changed[i].owner)
		}
		for ; from < to; from++ {
			if a.states[from] == entryShared {
				next.entries = append(next.entries, a.known.entries[from])
			}
		}
		next.entries = append(next.entries, changed[i:min(i+1, len(changed))]...)
	}
	return next
}
