package explain

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/names"
)

// ofMesh says what a name is that the meshes have or that they alone can have, and why the dataplane does not reach that by it; "" for
// one that may be outside. Such a name is never a domain to let out: its traffic would leave the mesh, and nothing is there.
func (t *Traffic) ofMesh(p *flowProxy, host string, port uint16) string {
	v := t.mesh.View
	isNamed := namedBy(v, host)
	table := &names.Table{}
	if t.Names != nil {
		if all := t.Names(); all != nil {
			table = all
		}
	}
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
		return fmt.Sprintf("%s is a name of the mesh %s: dial %s, where the proxy has it, instead of letting it out", host, v.Name, has)
	case is != nil:
		why := "the dataplane has no outbound for it"
		if t.mesh.Policies != nil {
			if r := t.mesh.Policies.Reach(p.dataplane).Of(is); !r.Reachable {
				about := &Proxy{index: t.mesh.Policies, dataplane: p.dataplane, spec: p.spec}
				why = about.why(is, r).Reason
			}
		}
		return fmt.Sprintf("%s is a name of %s in the mesh %s, which the dataplane does not reach: %s", host, destinationOf(is), v.Name, why)
	case v.Hostname(host) != nil:
		return fmt.Sprintf("%s is a name of %s in the mesh %s, and the dataplane has no outbound for it", host, v.Hostname(host).Resource, v.Name)
	case table.Find(host) != nil: // who asks may not be allowed to see more of it
		return fmt.Sprintf("%s is a name of another mesh, which the dataplane is not in", host)
	}
	for _, suffix := range append(table.OwnedSuffixes(), meshSuffix[1:]) {
		if host == suffix || strings.HasSuffix(host, "."+suffix) {
			return fmt.Sprintf("no service of the mesh %s has the name %s, and names below %s are of the meshes alone", v.Name, host, suffix)
		}
	}
	return ""
}
