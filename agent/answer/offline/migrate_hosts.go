package offline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// kindVirtualOutbound is the legacy kind that no policy replaces.
const kindVirtualOutbound = "VirtualOutbound"

// hosts says for each VirtualOutbound of the mesh how to define its hostnames instead. The
// VirtualOutbounds remain active: there are no shadow policies for them, and one can be deleted
// when its names are no longer used.
func (g *migration) hosts(stored *resource.Set) {
	if len(g.opts.Kinds) > 0 && !slices.Contains(g.opts.Kinds, kindVirtualOutbound) {
		return
	}
	for r, o := range resource.Specs[*resource.VirtualOutbound](stored.InMesh(kindVirtualOutbound, g.opts.Mesh)) {
		if !r.Shadow() {
			g.out.Without = append(g.out.Without, MigrationSource{r.Key.String(), insteadOfHosts(o)})
		}
	}
}

// insteadOfHosts says how to define the names of a VirtualOutbound for services that are resources.
func insteadOfHosts(o *resource.VirtualOutbound) string {
	template, others := o.Conf.Host, []string{}
	for i := range o.Conf.Parameters {
		p := &o.Conf.Parameters[i]
		with := "{{ .DisplayName }}"
		if p.Tag() != resource.TagService {
			with = "\x00"
		}
		for _, form := range []string{"{{." + p.Name + "}}", "{{ ." + p.Name + " }}"} {
			template = strings.ReplaceAll(template, form, with)
		}
		if strings.Contains(template, "\x00") {
			template = strings.ReplaceAll(template, "\x00", "…")
			others = append(others, p.Tag())
		}
	}
	const stays = "it remains active, because no policy replaces it: "
	if len(others) > 0 {
		return fmt.Sprintf(stays+"its names contain the values of %s, which HostnameGenerators do not support; create "+
			"a MeshService for each value, with spec.selector.dataplaneTags and the port %s, and name them by their labels",
			strings.Join(others, " and "), o.Conf.Port)
	}
	return fmt.Sprintf(stays+"create MeshServices with the port %s and a HostnameGenerator with the template %q",
		o.Conf.Port, template)
}
