package table

import (
	"maps"
	"net/netip"
	"slices"
)

// View limits what a client gets. A nil view sees all hosts and addresses, except the hosts of
// groups from [Apart] on.
type View struct {
	All    bool     // sees all groups below Apart
	V4, V6 bool     // the address families that the client gets
	Apart  []uint32 // the groups from Apart on that the client sees
	groups []uint64 // bit set of the groups that the client sees
}

// Apart is the first group that only views that name it see. For other clients, the table does not
// have the hosts of these groups.
const Apart = 1 << 31

// NewView returns a view of both address families of some groups. All views see the group 0.
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

// hides removes what the view does not see from the records of a type, and reports whether none are
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

// Answers is what a resolver answers by itself: a table, and the views of clients by their
// addresses. It does not change.
type Answers struct {
	Table   *Table
	views   map[netip.Addr]*View
	others  *View
	pending bool
}

// PendingAnswers are those of the time before there is a table: names below the suffixes fail
// (SERVFAIL), so that nobody is told that they do not exist. Hosts that are known already are
// answered.
func PendingAnswers(suffixes []string, known ...Host) *Answers {
	t, _ := New(Options{Suffixes: suffixes}, known) // a bad suffix or host is the matter of the table
	return &Answers{Table: t, pending: true}
}

// Others gives a view to clients whose addresses are in none.
func (a *Answers) Others(v *View) *Answers {
	return &Answers{Table: a.Table, views: a.views, others: v, pending: a.pending}
}

// NewAnswers makes answers. A client whose address is not in views sees everything that is not
// apart.
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

// owner returns where the longest owned suffix begins that the name is or is below; false for none.
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
