package route

import (
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
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
			if toolkit.Or(refs[i].Weight, 1) > 0 {
				out = append(out, refs[i].ref())
			}
		}
	}
	for i := range spec.To {
		switch conf := spec.To[i].Conf.(type) {
		case *TCPConf:
			for j := range conf.Rules {
				add(toolkit.Or(conf.Rules[j].Default.BackendRefs, nil))
			}
		case *HTTPConf:
			for j := range conf.Rules {
				do := &conf.Rules[j].Default
				add(toolkit.Or(do.BackendRefs, nil))
				for _, f := range toolkit.Or(do.Filters, nil) {
					if f.RequestMirror != nil {
						out = append(out, f.RequestMirror.BackendRef.ref())
					}
				}
			}
		}
	}
	return out
}
