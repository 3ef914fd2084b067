package legacy

import (
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// destinations lists what a TrafficRoute leads an outbound with some tags to.
func destinations(p *resource.Resource, outbound map[string]string) []policy.BackendRef {
	conf := toolkit.LegacyConf[Conf](p)
	if conf == nil {
		return nil
	}
	var out []policy.BackendRef
	add := func(split []Split, tags map[string]string) {
		for _, s := range splitOf(split, tags) {
			if toolkit.Or(s.Weight, 1) > 0 {
				out = append(out, refOf(s.Destination, outbound))
			}
		}
	}
	add(conf.Split, conf.Destination)
	for i := range conf.HTTP {
		add(conf.HTTP[i].Split, conf.HTTP[i].Destination)
	}
	return out
}
