package names

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Canary is a name that every table has, and nobody else: a query for it that is answered with
// [CanaryAddr] has reached an agent.
const Canary = "canary.nearside.invalid"

// CanaryAddr is the address of the canary. It is for documentation (RFC 5737), so that nobody is
// ever sent there.
func CanaryAddr() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 53}) }

// Options say what belongs to the meshes beside the names of their services. The zero value owns no
// suffix.
type Options struct {
	// Suffixes are owned: below them there is nothing but what the table has.
	Suffixes []string
	// Generators adds the suffixes of HostnameGenerators.
	Generators bool
	// Ranges are those of virtual addresses. Their reverse names are owned.
	Ranges []netip.Prefix
	// ReachableOnly makes a view for each dataplane of the node that does not reach all services.
	ReachableOnly bool
}

func (o *Options) equal(p *Options) bool {
	return slices.Equal(o.Suffixes, p.Suffixes) && slices.Equal(o.Ranges, p.Ranges) && o.Generators == p.Generators &&
		o.ReachableOnly == p.ReachableOnly
}

// Mesh is one mesh as names are made of it.
type Mesh struct {
	View     *mesh.View
	Policies *policy.Index // of the view; nil: no permission restricts what is reached
	Local    []string      // dataplanes whose proxies are on this node, sorted
}

// Name is a name that is answered.
type Name struct {
	mesh.Hostname // with the ports of the service
	Mesh          string
	Others        []*Name // of other meshes that claim the name and do not have it

	view *mesh.View
	rank int // of the mesh
}

// Service is the name of the service.
func (n *Name) Service() string { return n.Resource.Name + n.Tag }

// Suffix is a suffix that belongs to the meshes, or that does not although a generator ends its
// names with it.
type Suffix struct {
	Name      string
	Origin    string       // OriginConfig, OriginGenerator or OriginRange
	Generator resource.Key // of OriginGenerator
	Reason    string       // why it does not belong to them; "" where it does
}

// Origins of suffixes.
const (
	OriginConfig    = "config"
	OriginGenerator = "generator"
	OriginRange     = "range" // of virtual addresses
)

// Table is all names of a node. It does not change.
type Table struct {
	Names    []*Name  // sorted
	Suffixes []Suffix // that are owned, sorted; those of ranges come last
	Unowned  []Suffix // that are not, sorted
	Views    []View   // sorted by address
	Others   []uint32 // groups of domains that all see whose address has no view; see [table.Apart]
	// Pending says that there is no mesh yet, so that nobody can say which names there are.
	Pending bool

	options Options
	parts   []*part // by the name of the mesh
	reverse []pointer
	groups  groups
}

// pointer is what the reverse name of an address points to.
type pointer struct {
	addr netip.Addr
	to   *Name
}

// part is the names of one mesh.
type part struct {
	name      string
	view      *mesh.View
	local     bool
	names     []*Name // sorted
	domains   []taken // sorted
	hostnames []mesh.Hostname
	catalog   [32]byte
	seen      []localView
	clients   []client
}

// Build makes the table of a node. What of prev, which may be nil, still holds is used again: where
// nothing has changed, prev is returned.
func Build(o Options, meshes []Mesh, prev *Table) *Table {
	if prev == nil {
		prev = &Table{Pending: true}
	}
	meshes = slices.SortedFunc(slices.Values(meshes), func(a, b Mesh) int {
		return strings.Compare(a.View.Name, b.View.Name)
	})
	t := &Table{options: o, Pending: len(meshes) == 0, groups: prev.groups}
	t.groups.own = false
	changed := prev.parts == nil || len(meshes) != len(prev.parts) || !o.equal(&prev.options)
	if !o.equal(&prev.options) || prev.groups.wasteful() {
		t.groups = groups{}
		prev = &Table{}
		changed = true
	}
	for i := range meshes {
		p := t.newPart(&meshes[i], prev.part(meshes[i].View.Name))
		changed = changed || p != prev.part(p.name)
		t.parts = append(t.parts, p)
	}
	if t.parts == nil {
		t.parts = []*part{}
	}
	t.own(meshes)
	if !changed && slices.Equal(t.Suffixes, prev.Suffixes) && slices.Equal(t.Unowned, prev.Unowned) {
		return prev
	}
	t.merge()
	t.point()
	t.Others = t.commonDomains()
	t.see()
	return t
}

// part returns the names of a mesh, nil for none.
func (t *Table) part(name string) *part {
	i, ok := slices.BinarySearchFunc(t.parts, name, func(p *part, name string) int {
		return strings.Compare(p.name, name)
	})
	if !ok {
		return nil
	}
	return t.parts[i]
}

// Find returns the owner of a name, nil for none.
func (t *Table) Find(name string) *Name {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	i, ok := slices.BinarySearchFunc(t.Names, name, func(n *Name, name string) int {
		return strings.Compare(n.Name, name)
	})
	if !ok {
		return nil
	}
	return t.Names[i]
}

// newPart returns the names of a mesh: old where they are the same.
func (t *Table) newPart(m *Mesh, old *part) *part {
	v := m.View
	p := &part{name: v.Name, view: v, local: len(m.Local) > 0, hostnames: v.Hostnames(), catalog: v.Catalog,
		domains: t.domains(m)}
	same := old != nil && old.local == p.local && old.catalog == p.catalog && sameList(old.hostnames, p.hostnames) &&
		slices.Equal(old.domains, p.domains)
	if p.seen = t.localViews(m); same && slices.Equal(p.seen, old.seen) {
		return old
	}
	if same {
		p.names, p.view = old.names, old.view
	} else {
		p.make(t)
	}
	p.clients = t.clients(m, p.seen)
	p.apart(t)
	return p
}

// sameList reports whether two lists are one; views share theirs while nothing of it changes.
func sameList(a, b []mesh.Hostname) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// make makes the names.
func (p *part) make(t *Table) {
	rank := 1
	if p.local {
		rank = 0
	}
	room := make([]Name, len(p.hostnames))
	p.names = make([]*Name, len(room))
	for i := range p.hostnames {
		n := &room[i]
		*n = Name{Hostname: p.hostnames[i], Mesh: p.name, view: p.view, rank: rank}
		n.Ports = ports(p.view, &n.Hostname)
		if t.options.ReachableOnly {
			n.Group = t.groups.of(groupKey{p.name, n.Kind, n.Service()})
		}
		p.names[i] = n
	}
	p.addDomains(t)
}

// ports returns those of the service that has a name.
func ports(v *mesh.View, h *mesh.Hostname) []table.Port {
	if h.Origin == mesh.OriginVirtual {
		return h.Ports[:min(len(h.Ports), table.MaxPorts)]
	}
	if h.Kind == mesh.KindTag {
		s := v.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: h.Tag})
		if s == nil || s.Port > 65535 {
			return nil
		}
		return []table.Port{{Name: s.Section, Number: uint16(s.Port)}} // #nosec G115 -- it was compared
	}
	list := v.Ports(h.Resource)
	out := make([]table.Port, 0, len(list))
	for _, s := range list {
		if s.Port <= 65535 && len(out) < table.MaxPorts {
			out = append(out, table.Port{Name: s.Section, Number: uint16(s.Port)}) // #nosec G115 -- it was compared
		}
	}
	return out
}

// compare says which of two claims to one name comes first.
func (n *Name) compare(o *Name) int {
	return cmp.Or(n.rank-o.rank, originRank(n.Origin)-originRank(o.Origin), strings.Compare(n.Mesh, o.Mesh))
}

func originRank(o mesh.Origin) int {
	return slices.Index([]mesh.Origin{mesh.OriginStatus, mesh.OriginGenerator, mesh.OriginVirtual, mesh.OriginTag,
		mesh.OriginPolicy}, o)
}

// merge gives every name its owner.
func (t *Table) merge() {
	if len(t.parts) == 1 {
		t.Names = t.parts[0].names
		return
	}
	var all []*Name
	for _, p := range t.parts {
		all = append(all, p.names...)
	}
	slices.SortFunc(all, func(a, b *Name) int { return cmp.Or(strings.Compare(a.Name, b.Name), a.compare(b)) })
	out := all[:0]
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && all[j].Name == all[i].Name {
			j++
		}
		n := all[i]
		if j > i+1 {
			first := *n
			first.Contested, first.Others = true, slices.Clone(all[i+1:j])
			n = &first
		}
		out = append(out, n)
		i = j
	}
	t.Names = out
}

// point finds out what the addresses of the names point to: of several names of a service the one
// by which people know it.
func (t *Table) point() {
	at := make(map[netip.Addr]int, len(t.Names))
	for _, n := range t.Names {
		for _, a := range n.Addrs {
			i, known := at[a]
			switch {
			case !known:
				at[a] = len(t.reverse)
				t.reverse = append(t.reverse, pointer{a, n})
			case n.compare(t.reverse[i].to) < 0:
				t.reverse[i].to = n
			}
		}
	}
	slices.SortFunc(t.reverse, func(a, b pointer) int { return a.addr.Compare(b.addr) })
}
