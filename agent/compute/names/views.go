package names

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns/table"
)

// View is the view of the workloads at one address.
type View struct {
	table.View
	Addr       netip.Addr
	Dataplanes []resource.Key // with this address
}

// DNS returns the view in the form of the resolver's table, nil for nil.
func (v *View) DNS() *table.View {
	if v == nil {
		return nil
	}
	return &v.View
}

// View returns the view of an address, or nil if it sees everything.
func (t *Table) View(a netip.Addr) *View {
	i, ok := slices.BinarySearchFunc(t.Views, a.Unmap(), func(v View, a netip.Addr) int { return v.Addr.Compare(a) })
	if !ok {
		return nil
	}
	return &t.Views[i]
}

// ViewOf returns the view of a dataplane's workload, or nil if it sees everything, and whether its
// proxy is on this node. If the proxy is on another node, ViewOf returns the view that the workload
// would have on this node.
func (t *Table) ViewOf(m Mesh, r *resource.Resource) (v *View, local bool) {
	p := t.ofMesh(m.View.Name)
	if p != nil && slices.ContainsFunc(p.seen, func(x localView) bool { return x.dataplane == r.Key }) {
		if dp, ok := r.Spec.(*resource.Dataplane); ok {
			addr, err := netip.ParseAddr(dp.Networking.Address)
			if v := t.View(addr); err == nil && v != nil {
				return v, true
			}
		}
		return t.OthersView(), true
	}
	as := &Table{options: t.options, groups: groups{number: t.groups.number}}
	seen := []localView{{dataplane: r.Key}}
	one := &meshNames{name: m.View.Name, seen: seen, clients: as.clients(&m, seen)}
	one.apart(as, &m)
	as.perMesh = []*meshNames{one}
	as.see()
	if len(as.Views) == 0 {
		return nil, false
	}
	return &as.Views[0], false
}

// groups numbers services, so that a view is a bit set. The number of a service stays the same as
// long as the service exists.
type groups struct {
	number map[groupKey]uint32
	own    bool // number is not shared with another table
	live   int  // those that have a name
}

type groupKey struct{ mesh, kind, name string }

// of returns the number of a service. The number 0 is for names that every client sees.
func (g *groups) of(k groupKey) uint32 {
	n, ok := g.number[k]
	if !ok {
		switch {
		case g.number == nil:
			g.number = map[groupKey]uint32{}
		case !g.own:
			g.number = maps.Clone(g.number)
		}
		g.own = true
		n = uint32(len(g.number) + 1) // #nosec G115 -- bounded by the number of services
		g.number[k] = n
	}
	return n
}

// wasteful reports whether most numbers belong to services that no longer exist.
func (g *groups) wasteful() bool { return len(g.number) > 1024 && len(g.number) > 4*g.live }

// localView holds the inputs of a local dataplane's view.
type localView struct {
	dataplane resource.Key
	digest    resource.Digest
	reach     [32]byte // from permissions
	catalog   [32]byte
}

// client is a local dataplane with a restricted view.
type client struct {
	addr   netip.Addr
	key    resource.Key
	all    bool
	v4, v6 bool
	groups []uint32
	apart  []uint32
}

// localViews returns the local dataplanes.
func (t *Table) localViews(m *Mesh) (out []localView) {
	for _, name := range m.Local {
		r := m.View.Dataplane(name)
		if r == nil {
			continue
		}
		x := localView{dataplane: r.Key, digest: r.Digest}
		if t.options.ReachableOnly || len(m.View.ExternalHosts) > 0 {
			x.catalog = m.View.Catalog
			if m.Policies != nil {
				x.reach = m.Policies.ReachDigest(r)
			}
		}
		out = append(out, x)
	}
	return out
}

// clients computes the views of the local dataplanes. A dataplane whose address is not an IP
// address sees everything.
func (t *Table) clients(m *Mesh, local []localView) (out []client) {
	for i := range local {
		r := m.View.Dataplane(local[i].dataplane.Name)
		if r == nil {
			continue
		}
		dp, ok := r.Spec.(*resource.Dataplane)
		if !ok {
			continue
		}
		addr, err := netip.ParseAddr(dp.Networking.Address)
		if addr = addr.Unmap(); err != nil || addr.IsLoopback() || addr.IsUnspecified() {
			continue
		}
		c := client{addr: addr, key: r.Key, all: true, v4: true, v6: true}
		if tp := dp.Networking.TransparentProxying; tp != nil {
			c.v4, c.v6 = tp.IPFamilyMode != resource.IPFamilyIPv6, tp.IPFamilyMode != resource.IPFamilyIPv4
			if t.options.ReachableOnly && restricted(m, dp) {
				c.groups, c.all = t.reached(m, r), false
			}
		}
		out = append(out, c)
	}
	return out
}

// restricted reports whether the dataplane's lists, the mesh's mode, or permissions restrict what
// it reaches.
func restricted(m *Mesh, dp *resource.Dataplane) bool {
	services, backends := mesh.Lists(dp)
	auto := false
	if m.Policies != nil {
		auto, _ = m.Policies.AutoReachable()
	}
	return services || backends || auto || m.View.Spec.ServicesMode() == resource.MeshServicesReachableBackends
}

// reached returns the services that a dataplane reaches at their virtual addresses.
func (t *Table) reached(m *Mesh, r *resource.Resource) []uint32 {
	of := m.View.Reach(r).Of
	if m.Policies != nil {
		reach := m.Policies.Reach(r)
		of = func(s *mesh.Service) mesh.Verdict { return reach.Of(s).Verdict }
	}
	seen := map[uint32]bool{}
	for _, s := range m.View.Services() {
		if v := of(s); v.Reachable && v.Cause != mesh.CauseOutbound {
			seen[t.groups.of(groupKey{m.View.Name, s.ID.Kind, s.Resource.Name + s.Tag})] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// see creates the views. Dataplanes with the same address share a view with the names of all of
// them.
func (t *Table) see() {
	by := map[netip.Addr]*View{}
	for _, p := range t.perMesh {
		for i := range p.clients {
			c := &p.clients[i]
			v := by[c.addr]
			if v == nil {
				v = &View{Addr: c.addr, View: table.View{Apart: c.apart}}
				by[c.addr] = v
			}
			v.Apart = common(v.Apart, c.apart)
			v.Dataplanes = append(v.Dataplanes, c.key)
			v.All, v.V4, v.V6 = v.All || c.all, v.V4 || c.v4, v.V6 || c.v6
			for _, g := range c.groups {
				v.Add(g)
			}
		}
	}
	for _, v := range by {
		if v.All && v.V4 && v.V6 && slices.Equal(v.Apart, t.Others) {
			continue
		}
		slices.SortFunc(v.Dataplanes, func(a, b resource.Key) int { return strings.Compare(a.String(), b.String()) })
		t.Views = append(t.Views, *v)
	}
	slices.SortFunc(t.Views, func(a, b View) int { return a.Addr.Compare(b.Addr) })
	live := map[uint32]bool{}
	if t.options.ReachableOnly {
		for _, n := range t.Names {
			live[n.Group] = true
		}
	}
	t.groups.live = len(live)
}
