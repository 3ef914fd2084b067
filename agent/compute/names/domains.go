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

// taken is a name outside of the mesh at whose virtual addresses the proxy of a dataplane of the
// node takes connections.
type taken struct {
	dataplane, name string
	v4, v6          netip.Addr
	by              resource.Key // the first policy that asks for it
}

// domains lists what is taken of the proxies of the node, by dataplane and name.
func (t *Table) domains(m *Mesh) (out []taken) {
	if m.Policies == nil || !m.View.HasDomains() {
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

// domainsOf returns the names that the proxy of a dataplane takes, each with the first policy that
// asks for it.
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

// kindDomain numbers domains among the groups. No service is of that kind.
const kindDomain = "domain"

func (t *Table) domainGroup(mesh, name string) uint32 {
	return table.Apart + t.groups.of(groupKey{mesh, kindDomain, name})
}

// addDomains adds the names outside of the mesh, but for those that are names of its services.
func (p *part) addDomains(t *Table) {
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

// apart tells clients of the names outside of the mesh that their proxies take.
func (p *part) apart(t *Table) {
	for i := range p.clients {
		c := &p.clients[i]
		for j := range p.domains {
			if d := &p.domains[j]; d.dataplane == c.key.Name {
				c.apart = append(c.apart, t.domainGroup(p.name, d.name))
			}
		}
		slices.Sort(c.apart)
	}
}

// commonDomains are the groups of the domains that the proxies of all dataplanes of the node take:
// nothing tells those who ask from a loopback address apart.
func (t *Table) commonDomains() (out []uint32) {
	first := true
	for _, p := range t.parts {
		for _, x := range p.seen {
			var own []uint32
			for j := range p.domains {
				if d := &p.domains[j]; d.dataplane == x.dataplane.Name {
					own = append(own, t.domainGroup(p.name, d.name))
				}
			}
			slices.Sort(own)
			if first {
				out, first = own, false
			}
			out = common(out, own)
		}
	}
	return out
}

// common returns what two sorted lists have in common.
func common(a, b []uint32) (out []uint32) {
	for _, x := range a {
		if _, ok := slices.BinarySearch(b, x); ok {
			out = append(out, x)
		}
	}
	return out
}

// NotPast are the addresses that a domain with virtual addresses must not lead to, with the ranges
// of these.
func NotPast(ranges []netip.Prefix) []netip.Prefix { return append(policy.OwnAddresses(), ranges...) }

// OthersView is the view of those whose address has none; nil for everything but domains.
func (t *Table) OthersView() *View {
	if len(t.Others) == 0 {
		return nil
	}
	return &View{View: table.View{All: true, V4: true, V6: true, Apart: t.Others}}
}
