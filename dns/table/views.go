package table

import (
	"maps"
	"net/netip"
	"slices"
)

// View limits what a client sees. A nil view sees all hosts and addresses, except the hosts of
// groups from [Apart] on.
type View struct {
	All    bool     // sees all groups below Apart
	V4, V6 bool     // visible address families
	Apart  []uint32 // visible groups from Apart on
	// Unknown lists the names that get SERVFAIL, because the view of the client is not known yet.
	Unknown Unknown
	groups  []uint64 // bit set of visible groups below Apart
}

// Apart is the first group that is visible only to views that list it. For other clients, hosts
// of such groups are not in the table.
const Apart = 1 << 31

// Everyone is a group that every view sees, even one that is not known yet.
const Everyone = Apart - 1

// Unknown is the set of names whose answers depend on a view that is not known yet.
type Unknown uint8

// Sets of names, each with the names of the previous one.
const (
	UnknownNothing Unknown = iota
	UnknownApart           // names of groups from Apart on
	UnknownGroups          // names of all groups, except group 0 and Everyone
	UnknownAll             // all names, except those of Everyone
)

// has reports whether the set has the names of a group.
func (u Unknown) has(group uint32) bool {
	switch {
	case u == UnknownNothing || group == Everyone:
		return false
	case group >= Apart:
		return true
	case group > 0:
		return u >= UnknownGroups
	}
	return u >= UnknownAll
}

// NewView returns a view of some groups with both address families. Every view sees group 0.
func NewView(groups []uint32) *View {
	v := &View{V4: true, V6: true}
	for _, g := range groups {
		v.Add(g)
	}
	return v
}

// Add adds a group below [Apart].
func (v *View) Add(group uint32) {
	for int(group/64) >= len(v.groups) {
		v.groups = append(v.groups, 0)
	}
	v.groups[group/64] |= 1 << (group % 64)
}

// hides removes invisible addresses from the records of a type, and reports whether no record is
// left.
func (v *View) hides(r *rrset) bool {
	if v == nil || v.V4 && v.V6 {
		return false
	}
	if r.more > 0 { // additional records have both families
		r.body, r.more = r.body[:recordsLen(r.body, int(r.count))], 0
	}
	return r.qtype == TypeA && !v.V4 || r.qtype == TypeAAAA && !v.V6
}

// sees reports whether the view sees a group. If that is not known, it returns true, and the
// caller reports a failure.
func (v *View) sees(group uint32) bool {
	if v != nil && v.Unknown.has(group) {
		return true
	}
	if group == Everyone {
		return true
	}
	if group >= Apart {
		return v != nil && slices.Contains(v.Apart, group)
	}
	return v == nil || v.All || group == 0 || int(group/64) < len(v.groups) && v.groups[group/64]&(1<<(group%64)) != 0
}

// Answers is an immutable table with the views of clients, by their addresses.
type Answers struct {
	Table   *Table
	views   map[netip.Addr]*View
	others  *View
	remote  *View // like others, for addresses that are not loopback addresses; nil: others
	failing *Table
	pending bool
	partial bool
}

// PendingAnswers returns the answers before a table exists. Names below the suffixes get
// SERVFAIL, because clients would cache NXDOMAIN. Known hosts are answered.
func PendingAnswers(suffixes []string, known ...Host) *Answers {
	t, _ := New(Options{Suffixes: suffixes}, known) // invalid suffixes and hosts are reported with the table
	return &Answers{Table: t, pending: true}
}

// Pending returns a copy as long as the names of the meshes are unknown: names below owned suffixes
// get SERVFAIL, except known and local ones.
func (a *Answers) Pending() *Answers {
	next := *a
	next.pending = true
	return &next
}

// Partial returns a copy whose table lacks names of some meshes: names below owned suffixes that it
// lacks get SERVFAIL, except local ones.
func (a *Answers) Partial() *Answers {
	next := *a
	next.partial = true
	return &next
}

// Others returns a copy with a view for clients without their own view.
func (a *Answers) Others(v *View) *Answers {
	next := *a
	next.others = v
	return &next
}

// Remote returns a copy with a view for clients without their own view whose addresses are not
// loopback addresses. If it is nil, they have the view of [Answers.Others].
func (a *Answers) Remote(v *View) *Answers {
	next := *a
	next.remote = v
	return &next
}

// Failing returns a copy in which some names get SERVFAIL, unless the table has them for the client
// or the client has its own view. Use it for names outside the mesh that an unknown view may
// contain.
func (a *Answers) Failing(names []string) *Answers {
	next := *a
	next.failing = nil
	if len(names) > 0 {
		hosts := make([]Host, len(names))
		for i, name := range names {
			hosts[i].Name, hosts[i].Group = name, Apart
		}
		next.failing, _ = New(Options{}, hosts) // the table with the names reports invalid ones
	}
	return &next
}

// Fails reports whether queries of clients without their own view for the addresses of a name fail,
// because the view is not known yet. It returns false for an invalid name.
func (a *Answers) Fails(name string) bool {
	q, err := queryOf(name)
	if err != nil {
		return false
	}
	q.Qtype = TypeA
	m := a.Table.lookup(&q, a.others)
	return a.fails(&q, a.others, false, &m)
}

// fails reports whether a query fails because the view of its client is not known yet. own is
// true if the client has its own view.
func (a *Answers) fails(q *Query, v *View, own bool, m *match) bool {
	if v != nil && m.outcome != unknown && v.Unknown.has(m.group) {
		return true
	}
	if a.failing == nil || own || m.outcome == positive || m.outcome == noData {
		return false
	}
	f := a.failing.get(q.Key())
	return f.ok() && f.e.flags&flagHost != 0
}

// NewAnswers returns answers with views by client address. Other clients see everything except
// groups from [Apart] on.
func NewAnswers(t *Table, views map[netip.Addr]*View) *Answers {
	a := &Answers{Table: t, views: make(map[netip.Addr]*View, len(views))}
	for addr, v := range maps.All(views) {
		a.views[addr.Unmap().WithZone("")] = v
	}
	return a
}

// view returns the view of a client, and whether it is the client's own.
func (a *Answers) view(client netip.Addr) (v *View, own bool) {
	if len(a.views) > 0 {
		if v, ok := a.views[client.Unmap().WithZone("")]; ok {
			return v, true
		}
	}
	if a.remote != nil && !client.Unmap().IsLoopback() {
		return a.remote, false
	}
	return a.others, false
}

// owner returns the offset of the longest suffix in the name that the table owns or forwards, and
// its flags. It returns 0 flags if there is none.
func (t *Table) owner(q *Query) (at int, flags uint8) {
	if t == nil {
		return 0, 0
	}
	depths := uint64(0)
	if isReverse(q.Key()) {
		depths = t.depths(func(x *index) uint64 { return x.reverse })
	} else {
		depths = t.depths(func(x *index) uint64 { return x.owned })
	}
	for i := range q.depth {
		if depths&depthBit(q.depth-i) == 0 {
			continue
		}
		at := int(q.labels[i])
		if f := t.get(q.name[at:q.len]); f.ok() && f.e.flags&flagsOfSuffix != 0 {
			return at, f.e.flags
		}
	}
	return 0, 0
}
