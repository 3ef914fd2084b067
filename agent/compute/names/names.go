package names

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Canary is a name that every agent's table has and no other server knows: a client that receives
// [CanaryAddr] for it has reached an agent.
const Canary = "canary.nearside.invalid"

// CanaryAddr is the address of the canary. It is reserved for documentation (RFC 5737), so no host
// has it.
func CanaryAddr() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 53}) }

// Options configures which names belong to the meshes, in addition to the names of their services.
// The zero value owns no suffix.
type Options struct {
	// Suffixes are owned: all names below them that the table lacks do not exist.
	Suffixes []string
	// Forwarded are the domains with separate upstreams. They are not owned, unless Suffixes lists
	// them or a longer suffix.
	Forwarded []string
	// Generators adds the suffixes of HostnameGenerators that no other server has.
	Generators bool
	// Evidence has the answers of upstreams about suffixes. nil means that upstreams are never
	// asked.
	Evidence map[string]Evidence
	// Ranges are those of virtual addresses. Their reverse names are owned.
	Ranges []netip.Prefix
	// ReachableOnly creates a view for each local dataplane that does not reach all services.
	ReachableOnly bool
	// Missing are the meshes whose names are unknown, sorted. Names that the table lacks may be
	// theirs.
	Missing []string
}

// DefaultOptions returns the options of a resolver with the default config.
func DefaultOptions() Options {
	return Options{Suffixes: []string{"mesh", "mesh.local"}, Generators: true,
		Ranges: virtualip.DefaultRanges().Prefixes()}
}

// equal reports whether the names are the same. Forwarded and Evidence affect only suffixes.
func (o *Options) equal(p *Options) bool {
	return slices.Equal(o.Suffixes, p.Suffixes) && slices.Equal(o.Ranges, p.Ranges) && o.Generators == p.Generators &&
		o.ReachableOnly == p.ReachableOnly && slices.Equal(o.Missing, p.Missing)
}

// Mesh holds the inputs of one mesh.
type Mesh struct {
	View     *mesh.View
	Policies *policy.Index // of the view; nil if no permission restricts reachability
	Local    []string      // dataplanes with proxies on this node, sorted
}

// Name is a name that the resolver answers.
type Name struct {
	mesh.Hostname // with the ports of the service
	Mesh          string
	Others        []*Name // unsuccessful claims of other meshes

	view *mesh.View
	rank int // of the mesh
}

// Service returns the name of the service.
func (n *Name) Service() string { return n.Resource.Name + n.Tag }

// Suffix is a suffix that the meshes own, or that a generator uses without owning it.
type Suffix struct {
	Name      string
	Origin    string       // OriginConfig, OriginGenerator, or OriginRange
	Generator resource.Key // of OriginGenerator
	Asked     bool         // the answers of upstreams decide
	Reason    string       // why it is owned or not; "" for OriginConfig and OriginRange
}

// Origins of suffixes.
const (
	OriginConfig    = "config"
	OriginGenerator = "generator"
	OriginRange     = "range" // of virtual addresses
)

// Table holds all names of a node. It is immutable.
type Table struct {
	Names    []*Name  // sorted
	Suffixes []Suffix // owned, sorted; those of ranges come last
	Unowned  []Suffix // not owned, sorted
	Views    []View   // sorted by address
	Others   []uint32 // groups of external names that clients without a view see; see [table.Apart]
	// Pending is true while there is no mesh, so that the names are unknown.
	Pending bool

	options Options
	asked   int          // number of suffixes that depend on answers of upstreams
	perMesh []*meshNames // by the name of the mesh
	reverse []pointer
	groups  groups
}

// pointer is the target of an address's reverse name.
type pointer struct {
	addr netip.Addr
	to   *Name
}

// meshNames holds the names of one mesh.
type meshNames struct {
	name      string
	view      *mesh.View
	local     bool
	names     []*Name // sorted
	domains   []taken // sorted
	hostnames []mesh.Hostname
	catalog   [32]byte
	seen      []localView
	own       []external // of each of seen
	clients   []client
}

// Build returns the table of a node. It reuses unchanged parts of prev, which may be nil. It
// returns prev itself if nothing changed.
func Build(o Options, meshes []Mesh, prev *Table) *Table {
	if prev == nil {
		prev = &Table{Pending: true}
	}
	meshes = slices.SortedFunc(slices.Values(meshes), func(a, b Mesh) int {
		return strings.Compare(a.View.Name, b.View.Name)
	})
	t := &Table{options: o, Pending: len(meshes) == 0, groups: prev.groups}
	t.groups.own = false
	changed := prev.perMesh == nil || len(meshes) != len(prev.perMesh) || !o.equal(&prev.options)
	if !o.equal(&prev.options) || prev.groups.wasteful() {
		t.groups = groups{}
		prev = &Table{}
		changed = true
	}
	for i := range meshes {
		p := t.newMeshNames(&meshes[i], prev.ofMesh(meshes[i].View.Name))
		changed = changed || p != prev.ofMesh(p.name)
		t.perMesh = append(t.perMesh, p)
	}
	if t.perMesh == nil {
		t.perMesh = []*meshNames{}
	}
	t.own(meshes)
	if !changed && slices.Equal(t.Suffixes, prev.Suffixes) && slices.Equal(t.Unowned, prev.Unowned) &&
		slices.Equal(o.Forwarded, prev.options.Forwarded) {
		return prev
	}
	t.merge()
	t.point()
	t.Others = t.commonDomains()
	t.see()
	return t
}

// Missing returns the meshes whose names are unknown, sorted.
func (t *Table) Missing() []string { return t.options.Missing }

// ofMesh returns the names of a mesh, or nil.
func (t *Table) ofMesh(name string) *meshNames {
	i, ok := slices.BinarySearchFunc(t.perMesh, name, func(p *meshNames, name string) int {
		return strings.Compare(p.name, name)
	})
	if !ok {
		return nil
	}
	return t.perMesh[i]
}

// Find returns the owner of a name, or nil.
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

// newMeshNames returns the names of a mesh, or old if they are unchanged.
func (t *Table) newMeshNames(m *Mesh, old *meshNames) *meshNames {
	v := m.View
	p := &meshNames{name: v.Name, view: v, local: len(m.Local) > 0, hostnames: v.Hostnames(), catalog: v.Catalog,
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
	p.apart(t, m)
	return p
}

// sameList reports whether two lists are the same memory. Views share their lists while nothing
// changes.
func sameList(a, b []mesh.Hostname) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// make creates the names.
func (p *meshNames) make(t *Table) {
	rank := 1
	if p.local {
		rank = 0
	}
	storage := make([]Name, len(p.hostnames))
	p.names = make([]*Name, len(storage))
	for i := range p.hostnames {
		n := &storage[i]
		*n = Name{Hostname: p.hostnames[i], Mesh: p.name, view: p.view, rank: rank}
		n.Ports = ports(p.view, &n.Hostname)
		switch {
		case n.Origin == mesh.OriginHost:
			n.Group, n.Uncached = t.domainGroup(p.name, n.Name), true
		case t.options.ReachableOnly:
			n.Group = t.groups.of(groupKey{p.name, n.Kind, n.Service()})
		}
		p.names[i] = n
	}
	p.addDomains(t)
}

// ports returns the ports of the service that owns a name.
func ports(v *mesh.View, h *mesh.Hostname) []table.Port {
	if h.Origin == mesh.OriginVirtual || h.Origin == mesh.OriginHost {
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

// compare orders two claims to a name by precedence.
func (n *Name) compare(o *Name) int {
	return cmp.Or(n.rank-o.rank, originRank(n.Origin)-originRank(o.Origin), strings.Compare(n.Mesh, o.Mesh))
}

func originRank(o mesh.Origin) int {
	return slices.Index([]mesh.Origin{mesh.OriginStatus, mesh.OriginGenerator, mesh.OriginVirtual, mesh.OriginTag,
		mesh.OriginHost, mesh.OriginPolicy}, o)
}

// merge selects the owner of each name.
func (t *Table) merge() {
	if len(t.perMesh) == 1 {
		t.Names = t.perMesh[0].names
		return
	}
	var all []*Name
	for _, p := range t.perMesh {
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

// point selects the names to which addresses point: for several names of a service, the best-known
// one.
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
