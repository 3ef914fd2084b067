package mesh

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// claim is a service whose addresses need a decision.
type claim struct {
	owner serviceKey
	ports []*Service   // empty for a host or a domain
	host  *virtualHost // set only for a host
	entry int          // index in the known addresses, or -1
	addr  [families]netip.Addr
}

// entryState is the use of a known entry in the new view.
type entryState uint8

const (
	entryAbsent  entryState = iota // no service of the view owns it
	entryClaimed                   // a claim decides
	entryShared                    // the service has these addresses, and the result shares the entry
)

// vipAssigner assigns addresses to the services of one view.
type vipAssigner struct {
	v       *View
	o       *VIPOptions
	pools   map[string]*[families]vipPool
	known   *VIPs
	states  []entryState              // of the entries of known
	claims  []claim                   // in the order of services
	pins    map[netip.Addr]serviceKey // owners of the addresses set by a status
	waiting []*vipEntry               // of removed services that may return, sorted by owner
	changed bool                      // the known addresses change
	due     time.Time
}

// assignVIPs assigns virtual addresses to every service. The order of precedence is: the address in
// the service's status, its known address, and for a new service the first free address of a
// sequence derived from a hash of its name, so that nodes agree without communication. New services
// of one view choose in the order of their names. An assigned address changes only if a status
// requires it. The addresses of a removed service stay reserved for a while.
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
				"they get one when the state disk accepts writes", len(list), kindName(list[0].owner.kind), list[0].owner.name)
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
			v.domains = append(v.domains, c.addr)
		}
	}
	v.Domains = o.Domains
	v.IPv6, v.vips = o.IPv6 || v.someIPv6(), a.remember()
}

// enumerate assigns known addresses and lists the remaining services as claims. With all it lists
// every service, which is necessary if a status can take an address from any of them.
func (a *vipAssigner) enumerate(all bool) {
	if n := len(a.v.services) - len(a.known.entries); all || n > 0 {
		a.claims = make([]claim, 0, max(n, 0)+16)
	}
	at := 0 // services and known entries have nearly the same order
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

// hosts adds the names of VirtualOutbounds after all services.
func (a *vipAssigner) hosts() {
	for i := range a.v.hosts {
		h := &a.v.hosts[i]
		a.named(claim{owner: hostKey(h.name), host: h})
	}
}

// named adds a claim that is not a service.
func (a *vipAssigner) named(c claim) {
	c.entry = -1
	if at, ok := a.known.find(c.owner); ok {
		c.entry, a.states[at] = at, entryClaimed
	}
	a.claims = append(a.claims, c)
}

// outside adds names outside the mesh after all services.
func (a *vipAssigner) outside(domains []string) {
	for _, name := range domains {
		a.named(claim{owner: domainKey(name)})
	}
}

// had returns the known address of a claim; invalid if there is none.
func (a *vipAssigner) had(c *claim, f family) netip.Addr {
	if c.entry < 0 {
		return netip.Addr{}
	}
	return a.known.entries[c.entry].addr[f]
}

// warnf warns about a claim. A warning about a tag service goes to the mesh.
func (a *vipAssigner) warnf(c *claim, format string, args ...any) {
	k := a.v.mesh.Key
	if len(c.ports) > 0 && c.ports[0].Resource != (resource.Key{}) {
		k = c.ports[0].Resource
	}
	a.v.warnf(k, format, args...)
}

// wait reserves the addresses of removed services that may return.
func (a *vipAssigner) wait() {
	now, latest := a.o.Now.UnixMilli(), a.o.Now.Add(a.o.Hold).UnixMilli()
	for i, state := range a.states {
		if state != entryAbsent {
			continue
		}
		e := *a.known.entries[i]
		if e.gone == 0 || e.gone > latest { // a later time comes from a clock that was ahead
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

// newcomers leaves known addresses unchanged and returns the claims without an address, sorted.
func (a *vipAssigner) newcomers() (out [families][]*claim) {
	for i := range a.claims {
		c := &a.claims[i]
		for f := range families {
			if c.addr[f].IsValid() {
				continue
			}
			had := a.had(c, f)
			if by, ok := a.pins[had]; ok && by != c.owner {
				a.warnf(c, "its virtual address %s is in the status of %s %q, which takes precedence: this service gets "+
					"another address", had, by.kind, by.name)
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

// choose assigns addresses to new services of one kind.
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
	a.v.warnf(a.v.mesh.Key, "the range %s of virtual addresses is full: %d services have no address, the first "+
		"is %s %q; %d addresses are reserved for removed services; widen the range in vips of the agent's config",
		pool.prefix, len(without), kindName(kind), without[0].owner.name, waiting)
}

// taken iterates over the addresses of a kind's pool that a service has or that are reserved.
func (a *vipAssigner) taken(kind string, f family) iter.Seq[netip.Addr] {
	from, _ := a.known.find(serviceKey{kind: kind})
	to, _ := a.known.find(serviceKey{kind: kind + "\x00"})
	return func(yield func(netip.Addr) bool) {
		for i, e := range a.known.entries[from:to] {
			if a.states[from+i] == entryShared && !yield(e.addr[f]) {
				return
			}
		}
		for i := range a.claims { // of other kinds too: a status may name any address
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

// takenVIPs reports which addresses of a pool are taken. It answers a few queries by a scan and
// builds a set for more.
type takenVIPs struct {
	all   iter.Seq[netip.Addr]
	size  int // upper bound of the number of taken addresses
	asked int
	set   map[netip.Addr]bool
}

// maxLookThrough is the number of queries that are answered by a scan.
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

// remember returns the addresses to pass to the next view.
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
