package mesh

import (
	"net/netip"
	"slices"
	"time"
)

// choose gives newcomers their addresses.
func (a *vipAssigner) choose(fresh [families][]*claim) {
	for f, list := range fresh {
		for len(list) > 0 {
			kind := list[0].owner.kind
			n := slices.IndexFunc(list, func(c *claim) bool { return c.owner.kind != kind })
			if n < 0 {
				n = len(list)
			}
			a.chooseOf(kind, family(f), list[:n])
			list = list[n:]
		}
	}
}

// chooseOf gives addresses to the newcomers of one kind.
func (a *vipAssigner) chooseOf(kind string, f family, list []*claim) {
	pool := &a.pools[kind][f]
	taken := a.taken(kind, f, pool)
	var without *claim
	missing := 0
	for i, c := range list {
		if i > 0 && list[i-1].owner == c.owner {
			c.addr[f] = list[i-1].addr[f]
			continue
		}
		if taken.n < pool.size() {
			p := pool.probe(a.v.Name, c.owner)
			for range min(pool.size(), maxProbes) {
				if addr := pool.at(p.slot); !taken.has(addr) {
					taken.add(c, addr)
					break
				}
				p.next()
			}
		}
		if !c.addr[f].IsValid() {
			if missing++; without == nil {
				without = c
			}
		}
	}
	if missing == 0 {
		return
	}
	a.v.warnf(a.v.mesh.Key, "the range %s of virtual addresses is full: %d services have none in it, the first is %s %q; "+
		"%d addresses wait for services that went to come back; widen the range in vips of the agent's config",
		pool.prefix, missing, kindName(kind), without.owner.name, len(taken.held))
	for i := range taken.held {
		if gone := time.UnixMilli(taken.held[i].gone); a.due.IsZero() || gone.Before(a.due) {
			a.due = gone
		}
	}
}

func kindName(kind string) string {
	if kind == KindTag {
		return "kuma.io/service"
	}
	return kind
}

// takenVIPs answers which addresses of a pool somebody has. A few questions are answered by looking through all; a set
// is made when there are more.
type takenVIPs struct {
	f       family
	entries []*vipEntry // of the memory, of the kind
	fates   []fate      // of those; what was kept counts
	claims  []*claim    // of the kind
	held    []*vipEntry // of the kind, with an address of the family
	pins    map[netip.Addr]serviceKey
	n       int // addresses of the pool that somebody has
	asked   int
	set     map[netip.Addr]bool
}

// lookThrough is how many questions are answered without a set.
const lookThrough = 6

func (a *vipAssigner) taken(kind string, f family, pool *vipPool) *takenVIPs {
	from, _ := a.known.find(serviceKey{kind: kind})
	to, _ := a.known.find(serviceKey{kind: kind + "\x00"})
	t := &takenVIPs{f: f, pins: a.pins, entries: a.known.entries[from:to], fates: a.fates[from:to]}
	for _, how := range t.fates {
		if how == kept {
			t.n++
		}
	}
	for i := range a.claims {
		if c := &a.claims[i]; c.owner.kind == kind {
			t.claims = append(t.claims, c)
			if pool.holds(c.addr[f]) {
				t.n++
			}
		}
	}
	for _, e := range a.held {
		if e.owner.kind == kind && e.addr[f].IsValid() {
			t.held = append(t.held, e)
		}
	}
	t.n += len(t.held)
	for addr, o := range a.pins {
		if o.kind != kind && pool.holds(addr) {
			t.n++
		}
	}
	return t
}

func (t *takenVIPs) has(addr netip.Addr) bool {
	if _, pinned := t.pins[addr]; pinned {
		return true
	}
	if t.set != nil {
		return t.set[addr]
	}
	if t.asked++; t.asked <= lookThrough {
		for i := range t.entries {
			if t.entries[i].addr[t.f] == addr && t.fates[i] == kept {
				return true
			}
		}
		return slices.ContainsFunc(t.claims, func(c *claim) bool { return c.addr[t.f] == addr }) ||
			slices.ContainsFunc(t.held, func(e *vipEntry) bool { return e.addr[t.f] == addr })
	}
	t.set = make(map[netip.Addr]bool, t.n+len(t.claims))
	for i := range t.entries {
		if t.fates[i] == kept {
			t.set[t.entries[i].addr[t.f]] = true
		}
	}
	for _, c := range t.claims {
		t.set[c.addr[t.f]] = true
	}
	for i := range t.held {
		t.set[t.held[i].addr[t.f]] = true
	}
	return t.set[addr]
}

func (t *takenVIPs) add(c *claim, addr netip.Addr) {
	c.addr[t.f] = addr
	t.n++
	if t.set != nil {
		t.set[addr] = true
	}
}
