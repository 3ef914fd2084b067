package route

import (
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// destinations lists what a MeshHTTPRoute or MeshTCPRoute leads to, mirrors too.
func destinations(p *resource.Resource) []policy.BackendRef {
	spec, ok := p.Spec.(*resource.Policy)
	if !ok {
		return nil
	}
	var out []policy.BackendRef
	add := func(refs []BackendRef) {
		for i := range refs {
			if refs[i].weight() > 0 {
				out = append(out, refs[i].ref())
			}
		}
	}
	for i := range spec.To {
		switch conf := spec.To[i].Conf.(type) {
		case *TCPConf:
			for j := range conf.Rules {
				add(deref(conf.Rules[j].Default.BackendRefs))
			}
		case *HTTPConf:
			for j := range conf.Rules {
				do := &conf.Rules[j].Default
				add(deref(do.BackendRefs))
				for _, f := range deref(do.Filters) {
					if f.RequestMirror != nil {
						out = append(out, f.RequestMirror.BackendRef.ref())
					}
				}
			}
		}
	}
	return out
}

// legacyDestinations lists what a TrafficRoute leads an outbound with some tags to.
func legacyDestinations(p *resource.Resource, outbound map[string]string) []policy.BackendRef {
	conf := legacyConf(p)
	if conf == nil {
		return nil
	}
	var out []policy.BackendRef
	add := func(split []LegacySplit, tags map[string]string) {
		for _, s := range splitOf(split, tags) {
			if s.weight() > 0 {
				out = append(out, legacyRef(s.Destination, outbound))
			}
		}
	}
	add(conf.Split, conf.Destination)
	for i := range conf.HTTP {
		add(conf.HTTP[i].Split, conf.HTTP[i].Destination)
	}
	return out
}
