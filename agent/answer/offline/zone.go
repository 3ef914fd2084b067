package offline

import (
	"cmp"
	"fmt"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// ZoneConfig computes the config for the Envoy of a zone proxy. It also returns the warnings.
func (o *Offline) ZoneConfig(zone string, ref node.Ref) (*api.Config, []string, error) {
	r := o.set.Get(ref.Key())
	if r == nil {
		return nil, nil, fmt.Errorf("%s does not exist in the given resources", ref.Key())
	}
	in, err := o.zoneInput(zone)
	if err != nil {
		return nil, nil, err
	}
	in.Resource = r
	var warnings []mesh.Warning
	for _, m := range in.Meshes {
		warnings = append(warnings, m.View.Warnings...)
	}
	c, more, err := render.ZoneConfig(in, nil, false, nil)
	if err != nil {
		return nil, nil, err
	}
	return c, lines(append(warnings, more...)), nil
}

// zoneInput returns the input for the configs of zone proxies, without the proxy.
func (o *Offline) zoneInput(zone string) (generate.ZoneInput, error) {
	in := generate.ZoneInput{Zone: cmp.Or(zone, mesh.DefaultZone), Flavor: node.FlavorEnvoy, SystemCA: identity.SystemCA()}
	for _, r := range o.set.Kind("Mesh") {
		m, err := o.mesh(zone, r.Name)
		if err != nil {
			return in, err
		}
		in.Meshes = append(in.Meshes, m)
	}
	return in, nil
}
