package table

import (
	"maps"
	"net/netip"
	"slices"
)

// View is which groups of hosts a client may see, and which families of their addresses. Nil sees
// everything that is not apart.
type View struct {
	groups []uint64
	all    bool   // groups
	hidden uint16 // the type of address records that hosts have not; 0 for none
	apart  []uint32
}

// NewView makes a view of some groups. Hosts of the group 0 are in every view.
func NewView(groups []uint32) *View {
	v := &View{}
	for _, g := range groups {
		for int(g/64) >= len(v.groups) {
			v.groups = append(v.groups, make([]uint64, int(g/64)+1-len(v.groups))...)
		}
		v.groups[g/64] |= 1 << (g % 64)
	}
	return v
}

// Without4 returns the view without the IPv4 addresses of hosts. Nil stands for the view that sees
// everything.
func (v *View) Without4() *View { return v.without(TypeA) }

// Without6 is [View.Without4] for IPv6.
func (v *View) Without6() *View { return v.without(TypeAAAA) }

func (v *View) without(qtype uint16) *View {
	if v == nil {
		return &View{all: true, hidden: qtype}
	}
	return &View{groups: v.groups, all: v.all, hidden: qtype, apart: v.apart}
}

// hides takes what a view does not see from the records of a type; false where none are left.
func (v *View) hides(r *rrset) bool {
	if v == nil || v.hidden == 0 {
		return false
	}
	if r.more > 0 { // which are of both families
		r.body, r.more = r.body[:recordsLen(r.body, int(r.count))], 0
	}
	return r.qtype == v.hidden
}

// Apart is the first of the groups that nobody sees but views that name them. To others their hosts
// are not in the table.
const Apart = 1 << 31

// With returns the view with groups from [Apart] on.
func (v *View) With(apart []uint32) *View {
	out := View{all: true}
	if v != nil {
		out = *v
	}
	out.apart = apart
	return &out
}

func (v *View) sees(group uint32) bool {
	if group >= Apart {
		return v != nil && slices.Contains(v.apart, group)
	}
	return v == nil || v.all || group == 0 || int(group/64) < len(v.groups) && v.groups[group/64]&(1<<(group%64)) != 0
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
