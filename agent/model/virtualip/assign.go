package virtualip

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"
)

// Claim is an owner whose addresses need a decision.
type Claim struct {
	Owner   Owner
	Status  []string  // addresses in the status of its resource, which take precedence
	Cluster bool      // on Kubernetes, where a status holds the address of a Service
	Addr    Addresses // the decision, set by [Assigner.Assign]
	entry   int       // index in the known addresses, or -1
}

// entryState is the use of a known entry in the new view.
type entryState uint8

const (
	entryAbsent  entryState = iota // no service of the view owns it
	entryClaimed                   // a claim decides
	entryShared                    // the service has these addresses, and the result shares the entry
)

// Assigner assigns addresses to the owners of one view. The order of precedence is: the address in
// the service's status, its known address, and for a new service the first free address of a
// sequence derived from a hash of its name, so that nodes agree without communication. New services
// of one view choose in the order of their names. An assigned address changes only if a status
// requires it. The addresses of a removed service stay reserved for a while.
type Assigner struct {
	// Warn receives warnings about a claim, or about the mesh if it is nil.
	Warn func(c *Claim, reason string)

	mesh    string
	o       *Options
	pools   map[string]*[families]pool
	known   *Set
	next    int                  // index of the entry that is expected next
	states  []entryState         // of the entries of known
	claims  []*Claim             // in the order of services
	pins    map[netip.Addr]Owner // owners of the addresses set by a status
	waiting []*entry             // of removed services that may return, sorted by owner
	changed bool                 // the known addresses change
	due     time.Time
}

// NewAssigner returns an Assigner for one view of a mesh.
func NewAssigner(mesh string, o *Options) *Assigner {
	a := &Assigner{mesh: mesh, o: o, pools: o.pools(), pins: map[netip.Addr]Owner{}}
	a.known = o.Known.within(o.Ranges, a.pools)
	a.changed = a.known != o.Known
	a.states = make([]entryState, len(a.known.entries))
	return a
}

// Known returns the number of known owners.
func (a *Assigner) Known() int { return len(a.known.entries) }

// Settled returns the known addresses of an owner that needs no claim. It is fast if owners are
// asked in nearly the order of [Owner.Compare].
func (a *Assigner) Settled(o Owner) (Addresses, bool) {
	at, found := a.find(o)
	if !found {
		return Addresses{}, false
	}
	e := a.known.entries[at]
	if e.gone != 0 || !e.addr[V4].IsValid() || !e.addr[V6].IsValid() {
		return Addresses{}, false
	}
	a.states[at] = entryShared
	return e.addr, true
}

// find returns the index of a known owner. It first looks behind the one found last.
func (a *Assigner) find(o Owner) (int, bool) {
	found := a.next < len(a.known.entries) && a.known.entries[a.next].owner == o
	if !found {
		a.next, found = a.known.find(o)
	}
	at := a.next
	if found {
		a.next++
	}
	return at, found
}

// Claim adds an owner that is not settled. It is fast in the same order as [Assigner.Settled].
func (a *Assigner) Claim(c *Claim) {
	c.entry = -1
	if at, ok := a.find(c.Owner); ok {
		c.entry, a.states[at] = at, entryClaimed
	}
	a.claims = append(a.claims, c)
}

// Assign decides about all claims. It returns the addresses to pass to the next Assigner, which are
// the pointer from [Options.Known] if nothing changed, and whether all claims have addresses or
// could not get one: with [Options.Fixed], some may have to wait.
func (a *Assigner) Assign() (next *Set, complete bool) {
	complete = true
	a.pin()
	a.wait()
	for f, list := range a.newcomers() {
		complete = complete && !(a.o.Fixed && len(list) > 0)
		if a.o.Fixed && len(list) > 0 && Family(f) == V4 {
			a.warnf(nil, "services without a virtual address: %d, the first is %s %q; "+
				"they get one when the state disk accepts writes", len(list), kindName(list[0].Owner.Kind), list[0].Owner.Name)
		}
		for len(list) > 0 && !a.o.Fixed {
			n := 1
			for n < len(list) && list[n].Owner.Kind == list[0].Owner.Kind {
				n++
			}
			a.choose(Family(f), list[:n])
			list = list[n:]
		}
	}
	return a.remember(), complete
}

// had returns the known address of a claim; invalid if there is none.
func (a *Assigner) had(c *Claim, f Family) netip.Addr {
	if c.entry < 0 {
		return netip.Addr{}
	}
	return a.known.entries[c.entry].addr[f]
}

func (a *Assigner) warnf(c *Claim, format string, args ...any) {
	a.Warn(c, fmt.Sprintf(format, args...))
}

// wait reserves the addresses of removed services that may return.
func (a *Assigner) wait() {
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
func (a *Assigner) newcomers() (out [families][]*Claim) {
	for i := range a.claims {
		c := a.claims[i]
		for f := range families {
			if c.Addr[f].IsValid() {
				continue
			}
			had := a.had(c, f)
			if by, ok := a.pins[had]; ok && by != c.Owner {
				a.warnf(c, "its virtual address %s is in the status of %s %q, which takes precedence: this service gets "+
					"another address", had, by.Kind, by.Name)
				had = netip.Addr{}
			}
			if c.Addr[f] = had; !had.IsValid() {
				out[f] = append(out[f], c)
			}
		}
	}
	for f := range families {
		slices.SortFunc(out[f], func(x, y *Claim) int { return x.Owner.Compare(y.Owner) })
	}
	return out
}

// choose assigns addresses to new services of one kind.
func (a *Assigner) choose(f Family, newcomers []*Claim) {
	kind := newcomers[0].Owner.Kind
	pool := &a.pools[kind][f]
	n, all := 0, a.taken(kind, f)
	for range all {
		n++
	}
	taken := takenAddresses{all: all, size: n + len(newcomers)}
	var without []*Claim
	for i, c := range newcomers {
		if i > 0 && newcomers[i-1].Owner == c.Owner {
			c.Addr[f] = newcomers[i-1].Addr[f]
			continue
		}
		if n < pool.size() {
			p := pool.probe(a.mesh, c.Owner)
			for range min(pool.size(), maxProbes) {
				if addr := pool.at(p.slot); !taken.has(addr) {
					c.Addr[f] = addr
					taken.add(addr)
					n++
					break
				}
				p.next()
			}
		}
		if !c.Addr[f].IsValid() {
			without = append(without, c)
		}
	}
	if len(without) == 0 {
		return
	}
	waiting := 0
	for _, e := range a.waiting {
		if e.owner.Kind == kind && e.addr[f].IsValid() {
			waiting++
			if gone := time.UnixMilli(e.gone); a.due.IsZero() || gone.Before(a.due) {
				a.due = gone
			}
		}
	}
	a.warnf(nil, "the range %s of virtual addresses is full: %d services have no address, the first "+
		"is %s %q; %d addresses are reserved for removed services; widen the range in vips of the agent's config",
		pool.prefix, len(without), kindName(kind), without[0].Owner.Name, waiting)
}

// taken iterates over the addresses of a kind's pool that a service has or that are reserved.
func (a *Assigner) taken(kind string, f Family) iter.Seq[netip.Addr] {
	from, _ := a.known.find(Owner{Kind: kind})
	to, _ := a.known.find(Owner{Kind: kind + "\x00"})
	return func(yield func(netip.Addr) bool) {
		for i, e := range a.known.entries[from:to] {
			if a.states[from+i] == entryShared && !yield(e.addr[f]) {
				return
			}
		}
		for i := range a.claims { // of other kinds too: a status may name any address
			if addr := a.claims[i].Addr[f]; a.pools[kind][f].holds(addr) && !yield(addr) {
				return
			}
		}
		for _, e := range a.waiting {
			if e.owner.Kind == kind && e.addr[f].IsValid() && !yield(e.addr[f]) {
				return
			}
		}
	}
}

// takenAddresses reports which addresses of a pool are taken. It answers a few queries by a scan
// and builds a set for more.
type takenAddresses struct {
	all   iter.Seq[netip.Addr]
	size  int // upper bound of the number of taken addresses
	asked int
	set   map[netip.Addr]bool
}

// maxLookThrough is the number of queries that are answered by a scan.
const maxLookThrough = 6

func (t *takenAddresses) has(addr netip.Addr) bool {
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

func (t *takenAddresses) lookThrough(addr netip.Addr) bool {
	for other := range t.all {
		if other == addr {
			return true
		}
	}
	return false
}

func (t *takenAddresses) add(addr netip.Addr) {
	if t.set != nil {
		t.set[addr] = true
	}
}

// remember returns the addresses to pass to the next view.
func (a *Assigner) remember() *Set {
	changed := slices.Grow(a.waiting, len(a.claims)) // entries that are not shared
	for i := range a.claims {
		c := a.claims[i]
		pools, e := a.pools[c.Owner.Kind], entry{owner: c.Owner}
		for f := range families {
			if pools[f].holds(c.Addr[f]) {
				e.addr[f] = c.Addr[f]
			}
		}
		switch {
		case c.entry >= 0 && e == *a.known.entries[c.entry] && e.any():
			changed = append(changed, a.known.entries[c.entry])
		case e.any():
			other := e // e stays on the stack
			changed, a.changed = append(changed, &other), true
		default:
			a.changed = a.changed || c.entry >= 0 && e != *a.known.entries[c.entry]
		}
	}
	if !a.changed && a.due.Equal(a.known.due) {
		return a.known
	}
	slices.SortFunc(changed, func(x, y *entry) int { return x.owner.Compare(y.owner) })
	changed = slices.CompactFunc(changed, func(x, y *entry) bool { return x.owner == y.owner })
	next := &Set{entries: make([]*entry, 0, len(a.known.entries)+len(changed)), due: a.due, ranges: a.known.ranges}
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
