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

// taken is an external name for which the proxy of a local dataplane accepts connections at virtual
// addresses.
type taken struct {
	dataplane, name string
	v4, v6          netip.Addr
	by              resource.Key // the first policy that requests it
}

// domains returns the external names of the node's proxies, sorted by dataplane and name.
func (t *Table) domains(m *Mesh) (out []taken) {
	if m.Policies == nil || len(m.View.Domains) == 0 {
		return nil
	}
	for _, name := range m.Local {
		r := m.View.Dataplane(name)
		if r == nil {
			continue
		}
		for d, by := range domainsOf(m, r) {
			x := taken{dataplane: name, name: d, by: by}
			x.v4, x.v6 = m.View.Domain(d)
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b taken) int {
		return cmp.Or(strings.Compare(a.dataplane, b.dataplane), strings.Compare(a.name, b.name))
	})
	return out
}

// domainsOf returns the external names of a dataplane's proxy, each with the first policy that
// requests it.
func domainsOf(m *Mesh, r *resource.Resource) map[string]resource.Key {
	spec, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return nil
	}
	var out map[string]resource.Key
	var c *policy.Context
	for i := range m.Policies.Plugins {
		p := &m.Policies.Plugins[i]
		if p.Domains == nil || p.InForce == nil {
			continue
		}
		if c == nil {
			c = (&policy.Context{View: m.View, Rules: m.Policies.Rules(r)}).WithDataplane(r, spec)
		}
		found := p.InForce(c)
		if found == nil {
			continue
		}
		for j := range found.Permits {
			x := &found.Permits[j]
			if len(x.At) == 0 || len(x.Sources) == 0 {
				continue
			}
			if out == nil {
				out = map[string]resource.Key{}
			}
			if _, known := out[x.Value]; !known {
				out[x.Value] = x.Sources[0].Resource
			}
		}
	}
	return out
}

// kindDomain is the kind of domains among the groups. No service has this kind.
const kindDomain = "domain"

func (t *Table) domainGroup(mesh, name string) uint32 {
	return table.Apart + t.groups.of(groupKey{mesh, kindDomain, name})
}

// addDomains adds the external names, except those that are also names of services.
func (p *meshNames) addDomains(t *Table) {
	had := len(p.names)
	for i := range p.domains {
		d := &p.domains[i]
		is := func(n *Name) bool { return n.Name == d.name }
		if _, ok := slices.BinarySearchFunc(p.names[:had], d.name, func(n *Name,
			name string) int {
			return strings.Compare(n.Name, name)
		}); ok || slices.ContainsFunc(p.names[had:], is) {
			continue
		}
		n := &Name{Mesh: p.name, view: p.view, rank: 1}
		n.Hostname = mesh.Hostname{Host: table.Host{Name: d.name, Group: t.domainGroup(p.name, d.name)}, Kind: d.by.Kind,
			Resource: d.by, Origin: mesh.OriginPolicy}
		for _, a := range []netip.Addr{d.v4, d.v6} {
			if a.IsValid() {
				n.Addrs = append(n.Addrs, a)
			}
		}
		p.names = append(p.names, n)
	}
	if len(p.names) > had {
		slices.SortFunc(p.names, func(a, b *Name) int { return strings.Compare(a.Name, b.Name) })
	}
}

// external holds the external names for which the proxy of a dataplane accepts connections, sorted,
// and their groups, sorted.
type external struct {
	names  []string
	groups []uint32
}

// apart records the external names of each local dataplane's proxy: domains of policies, and hosts
// of ExternalServices.
func (p *meshNames) apart(t *Table, m *Mesh) {
	p.own = make([]external, len(p.seen))
	for i := range p.seen {
		x, name := &p.own[i], p.seen[i].dataplane.Name
		for j := range p.domains {
			if d := &p.domains[j]; d.dataplane == name {
				x.names = append(x.names, d.name)
			}
		}
		x.names = append(x.names, servedHosts(m, m.View.Dataplane(name))...)
		slices.Sort(x.names)
		for _, name := range x.names {
			x.groups = append(x.groups, t.domainGroup(p.name, name))
		}
		slices.Sort(x.groups)
	}
	for i := range p.clients {
		c := &p.clients[i]
		at := slices.IndexFunc(p.seen, func(v localView) bool { return v.dataplane == c.key })
		c.apart = p.own[at].groups
	}
}

// servedHosts returns the hosts of ExternalServices that the proxy of a dataplane serves.
func servedHosts(m *Mesh, r *resource.Resource) []string {
	if r == nil || len(m.View.ExternalHosts) == 0 {
		return nil
	}
	list, _ := m.View.Outbounds(r)
	if m.Policies != nil {
		list, _ = m.Policies.Outbounds(r)
	}
	return m.View.ExternalHostsIn(list)
}

// commonDomains returns the groups of the external names that the proxies of all local dataplanes
// share: clients with a loopback address cannot be distinguished.
func (t *Table) commonDomains() (out []uint32) {
	first := true
	for _, p := range t.perMesh {
		for i := range p.own {
			if first {
				out, first = p.own[i].groups, false
			}
			out = common(out, p.own[i].groups)
		}
	}
	return out
}

// common returns the intersection of two sorted lists.
func common(a, b []uint32) (out []uint32) {
	for _, x := range a {
		if _, ok := slices.BinarySearch(b, x); ok {
			out = append(out, x)
		}
	}
	return out
}

// NotPast returns the addresses to which a domain with virtual addresses must not resolve,
// including the ranges of virtual addresses.
func NotPast(ranges []netip.Prefix) []netip.Prefix { return append(policy.OwnAddresses(), ranges...) }

// OthersView returns the view for clients whose address has no view, or nil if they see everything
// except domains.
func (t *Table) OthersView() *View {
	if len(t.Others) == 0 {
		return nil
	}
	return &View{View: table.View{All: true, V4: true, V6: true, Apart: t.Others}}
}
