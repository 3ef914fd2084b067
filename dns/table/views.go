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
	groups []uint64 // bit set of visible groups below Apart
}

// Apart is the first group that is visible only to views that list it. For other clients, hosts
// of such groups are not in the table.
const Apart = 1 << 31

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

func (v *View) sees(group uint32) bool {
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
	pending bool
}

// PendingAnswers returns the answers before a table exists. Names below the suffixes get
// SERVFAIL, because clients would cache NXDOMAIN. Known hosts are answered.
func PendingAnswers(suffixes []string, known ...Host) *Answers {
	t, _ := New(Options{Suffixes: suffixes}, known) // invalid suffixes and hosts are reported with the table
	return &Answers{Table: t, pending: true}
}

// Others returns a copy with a view for clients without their own view.
func (a *Answers) Others(v *View) *Answers {
	return &Answers{Table: a.Table, views: a.views, others: v, pending: a.pending}
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

func (a *Answers) view(client netip.Addr) *View {
	if len(a.views) > 0 {
		if v, ok := a.views[client.Unmap().WithZone("")]; ok {
			return v
		}
	}
	return a.others
}

// owner returns the offset of the longest owned suffix in the name, and false if there is none.
func (t *Table) owner(q *Query) (int, bool) {
	if t == nil {
		return 0, false
	}
	depths := t.depths(func(x *index) uint64 { return x.owned })
	for i := range q.depth {
		if depths&depthBit(q.depth-i) == 0 {
			continue
		}
		at := int(q.labels[i])
		if f := t.get(q.name[at:q.len]); f.ok() && f.e.flags&flagOwned != 0 {
			return at, true
		}
	}
	return 0, false
}
