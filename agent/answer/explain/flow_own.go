package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// ofMesh says what a name is that the meshes have or that they alone can have, and why the
// dataplane does not reach that by it; "" for one that may be outside. Such a name is never a
// domain to let out: its traffic would leave the mesh, and nothing is there.
func (t *Traffic) ofMesh(p *flowProxy, host string, port uint16) string {
	v, table := t.mesh.View, t.table()
	isNamed := namedBy(v, host)
	var is *mesh.Service
	for _, s := range v.Services() {
		if (is == nil || s.Port == uint32(port) && is.Port != s.Port) && isNamed(&mesh.Outbound{Service: s}) {
			is = s
		}
	}
	has := ""
	for i := range p.outbounds {
		if o := &p.outbounds[i]; has == "" && isNamed(o) {
			has = fmt.Sprintf("%s:%d", o.Address, o.Port)
		}
	}
	switch {
	case has != "":
		return fmt.Sprintf("%s is a name of the mesh %s: dial %s, where the proxy has it, instead of letting it out",
			host, v.Name, has)
	case is != nil:
		why := "the dataplane has no outbound for it"
		if t.mesh.Policies != nil {
			if r := t.mesh.Policies.Reach(p.dataplane).Of(is); !r.Reachable {
				about := &Proxy{index: t.mesh.Policies, dataplane: p.dataplane, spec: p.spec}
				why = WhyReach(about.index, about.spec, is, r).Reason
			}
		}
		return fmt.Sprintf("%s is a name of %s in the mesh %s, which the dataplane does not reach: %s",
			host, destinationOf(is), v.Name, why)
	case v.Hostname(host) != nil:
		return fmt.Sprintf("%s is a name of %s in the mesh %s, and the dataplane has no outbound for it",
			host, v.Hostname(host).Resource, v.Name)
	case table.Find(host) != nil: // who asks may not be allowed to see more of it
		return fmt.Sprintf("%s is a name of another mesh, which the dataplane is not in", host)
	}
	for _, suffix := range append(table.OwnedSuffixes(), meshSuffix[1:]) {
		if host == suffix || below(host, suffix) {
			return fmt.Sprintf("no service of the mesh %s has the name %s, and names below %s are of the meshes alone",
				v.Name, host, suffix)
		}
	}
	return ""
}

// table has the names of all meshes, as far as they are known.
func (t *Traffic) table() *names.Table {
	if t.Names != nil {
		if all := t.Names(); all != nil {
			return all
		}
	}
	return &names.Table{}
}

// below reports whether a name is one of the names below a domain.
func below(name, domain string) bool { return strings.HasSuffix(name, "."+domain) }

// wildcard is the match for all hosts of the domain that a host is in; "" where that would also
// take a name that the meshes have or that they alone can have, or all of a top-level domain.
func (t *Traffic) wildcard(host string) string {
	_, domain, _ := strings.Cut(host, ".")
	if !strings.Contains(domain, ".") {
		return ""
	}
	v, table := t.mesh.View, t.table()
	for _, suffix := range append(table.OwnedSuffixes(), meshSuffix[1:]) {
		if domain == suffix || below(domain, suffix) || below(suffix, domain) {
			return ""
		}
	}
	for _, n := range table.Names {
		if below(n.Name, domain) {
			return ""
		}
	}
	for _, h := range v.Hostnames() {
		if below(h.Name, domain) {
			return ""
		}
	}
	for _, s := range v.Services() {
		if slices.ContainsFunc(namesOf(&mesh.Outbound{Service: s}), func(name string) bool { return below(name, domain) }) {
			return ""
		}
	}
	return "*." + domain
}
