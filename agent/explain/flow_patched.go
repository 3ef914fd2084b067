package explain

import (
	"github.com/nearside-mesh/nearside/agent/attribute"
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/node"
)

// Kinds whose policies may change anything of a config.
const (
	kindPatch    = "MeshProxyPatch"
	kindTemplate = "ProxyTemplate"
)

// patched lists the patches that shape a resource: those without which it would have other bytes. It is found out once,
// when the dataplane has any.
func (p *flowProxy) patched(m *generate.Mesh, id draft.ResourceID) []FlowPolicy {
	rules := p.rules()
	if rules == nil || rules.Kind(kindPatch) == nil && rules.LegacyProxy(kindTemplate) == nil {
		return nil
	}
	if p.owners == nil {
		p.owners = map[draft.ResourceID][]FlowPolicy{}
		owners, err := attribute.Owners(m, generate.ProxyID{Mesh: m.View.Name, Name: p.dataplane.Name, Flavor: node.FlavorEnvoy}, func(id draft.ResourceID) bool {
			return id.TypeURL == envoy.KindListener.URL() || id.TypeURL == envoy.KindCluster.URL()
		})
		if err != nil {
			return nil // the config was made before, and is made no other way
		}
		for id, list := range owners {
			for _, o := range list {
				ref := RefOf(o)
				switch o.Kind {
				case kindPatch:
					p.owners[id] = append(p.owners[id], FlowPolicy{Ref: ref, Field: "spec.default.appendModifications"})
				case kindTemplate:
					p.owners[id] = append(p.owners[id], FlowPolicy{Ref: ref, Field: "conf"})
				}
			}
		}
	}
	return p.owners[id]
}
