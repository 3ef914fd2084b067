package effect

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxBrief limits the outbounds of a brief config.
const maxBrief = 4 * maxClasses

// brief is a config with one service of each class of outbounds. It is much smaller than the whole
// config, and every difference in it is also one in the whole config.
type brief struct {
	only   []mesh.Outbound
	config *generate.Proxy // nil if it would not be smaller, or cannot be built
}

// briefOf returns the brief config of a proxy.
func (x *Examiner) briefOf(p *proxy) *brief {
	if p.brief != nil {
		return p.brief
	}
	p.brief = &brief{}
	outbounds, _ := x.mesh.Policies.Outbounds(p.dataplane)
	if len(outbounds) < maxClasses { // the whole config is small
		return p.brief
	}
	c := classify(p.layout(x.mesh), outbounds, "")
	chosen := make([]int, min(len(c.first), maxBrief))
	for i := range chosen {
		chosen[i] = i
	}
	if p.brief.only = c.only(chosen); 2*len(p.brief.only) > len(outbounds) {
		return p.brief
	}
	config, err := x.generate(x.mesh.Only(p.brief.only), p.dataplane.Name, nil)
	if err == nil {
		p.brief.config = config
	}
	return p.brief
}

// inBrief returns the resources of the brief config of a proxy that change without a policy. If
// there are none, the policy may change others. It examines no policy about the whole proxy, such
// as a patch, whose effect may depend on the names of other outbounds.
func (x *Examiner) inBrief(r *resource.Resource, p *proxy) []draft.ResourceID {
	plugin, _, _ := KindOf(x.mesh.Policies, r.Kind)
	spec, ok := r.Spec.(*resource.Policy)
	if !ok || spec.Default != nil || p.unlike(plugin) || p.published != nil { // hold needs all changes
		return nil
	}
	b := x.briefOf(p)
	if b.config == nil || x.spent() {
		return nil
	}
	without, err := x.generate(x.leaveOut(r.Key).Only(b.only), p.dataplane.Name, b.config)
	if err != nil {
		return nil
	}
	return changed(without, b.config)
}
