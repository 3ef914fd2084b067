package offline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// kindVirtualOutbound is a legacy kind that no policy replaces.
const kindVirtualOutbound = "VirtualOutbound"

// hosts says of each VirtualOutbound of the mesh what names services instead. All stay in force: no
// shadow policy can stand for one, and deleting one is safe once nobody asks for its names.
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

// insteadOfHosts says what gives the names of a VirtualOutbound when services are resources.
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
	const stays = "it stays in force, and no policy replaces it: "
	if len(others) > 0 {
		return fmt.Sprintf(stays+"its names hold the values of %s, which HostnameGenerators do not know; write a "+
			"MeshService for each value, with spec.selector.dataplaneTags and the port %s, and name them by their labels",
			strings.Join(others, " and "), o.Conf.Port)
	}
	return fmt.Sprintf(stays+"write MeshServices with the port %s, and a HostnameGenerator with the template %q",
		o.Conf.Port, template)
}
