package offline

import (
	"cmp"
	"fmt"

	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/identity"
	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/node"
)

// ZoneConfig computes what the Envoy of a proxy at the border of a zone would get, and what was left out of it and why.
func (o *Offline) ZoneConfig(zone string, ref ProxyRef) (*inspect.Config, []string, error) {
	in := generate.ZoneInput{Resource: o.set.Get(ref.Key()), Zone: cmp.Or(zone, mesh.DefaultZone), Flavor: node.FlavorEnvoy, SystemCA: identity.SystemCA()}
	if in.Resource == nil {
		return nil, nil, fmt.Errorf("%s does not exist: it is not among the %d resources given", ref.Key(), o.Len())
	}
	var warnings []mesh.Warning
	for _, r := range o.set.Kind("Mesh") {
		m, err := o.mesh(zone, r.Name)
		if err != nil {
			return nil, nil, err
		}
		in.Meshes = append(in.Meshes, m)
		warnings = append(warnings, m.View.Warnings...)
	}
	c, more, err := inspect.ZoneConfig(in, nil, false, nil)
	if err != nil {
		return nil, nil, err
	}
	return c, lines(append(warnings, more...)), nil
}
