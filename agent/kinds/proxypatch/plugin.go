// Package proxypatch is the plugin of MeshProxyPatch: changes of Envoy's own messages, for what no other kind says. The
// ProxyTemplate that it replaces stands in its subfolder legacy.
//
// Its policies act last, on listeners, clusters, virtual hosts, network filters and HTTP filters that all others have
// made. A modification adds, removes, merges a message into another one, or applies a JSON Patch. Values are read
// strictly when a policy is applied: an unknown field, an unknown type or what Envoy would reject is a fault with its
// path.
//
// Whether a patch fits shows only on the resource that it patches. Of each resource a policy changes all that it wants
// or nothing: where a patch fails, or what comes out breaks one of Envoy's load rules for the structure of a resource,
// the resource stays without that policy, and a warning names it. The rules are those of package envoy.
package proxypatch

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Kind is the targetRef kind.
const Kind = "MeshProxyPatch"

// OriginPatch is the origin of what policies add.
const OriginPatch = "mesh-proxy-patch"

// LegacyConf is the conf of a source-destination kind with an effect of the same form. Of its policies one acts on a
// proxy.
type LegacyConf interface {
	Plan(c *policy.Context, r *resource.Resource) Plan
}

// Plugin declares the kind and its effect, with the legacy kind that it replaces.
func Plugin(legacy policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshproxypatches", "mpp", resource.PolicyShape{
			Top:     []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "MeshGateway", "Dataplane"},
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy,
		})},
		Legacy: []policy.LegacyKind{legacy},
		Behind: func(f *policy.Flow) []policy.Written { return behind(f, legacy.Kind) },
		Apply: func(c *policy.Context, d *draft.Draft) {
			if plans := plansOf(c, legacy.Kind); len(plans) > 0 {
				(&editor{c: c, d: d, plans: plans}).run()
			}
		},
		NoEffect: noEffects,
	}
}

// noEffects says what of a policy was left out.
func noEffects(c *policy.Context, p *resource.Resource) []policy.NoEffect {
	for _, w := range c.Warnings {
		if w.Resource == p.Key && w.Reason == noEffect {
			return []policy.NoEffect{{}}
		}
	}
	for _, field := range []string{"spec.default.appendModifications", "conf.modifications", "conf.resources"} {
		for _, w := range c.Warnings {
			if w.Resource == p.Key && strings.HasPrefix(w.Reason, field+"[") {
				return []policy.NoEffect{{Field: field, Part: true}}
			}
		}
	}
	return nil
}

// plansOf returns what the policies of the proxy want, the weakest first.
func plansOf(c *policy.Context, legacyKind string) []Plan {
	if k := c.Rules.Kind(Kind); k != nil && k.Proxy != nil {
		out := make([]Plan, 0, len(k.Proxy.Origins))
		for _, o := range k.Proxy.Origins {
			if p, ok := o.Policy.Spec.(*resource.Policy); ok {
				if conf, ok := p.Default.(*Conf); ok {
					out = append(out, Plan{Policy: o.Policy, Changes: conf.changes()})
				}
			}
		}
		return out
	}
	if r := c.Rules.LegacyProxy(legacyKind); r != nil {
		if p, ok := r.Spec.(*resource.LegacyPolicy); ok {
			if conf, ok := p.Conf.(LegacyConf); ok {
				return []Plan{conf.Plan(c, r)}
			}
		}
	}
	return nil
}

// checkPolicy finds policies that say nothing.
func checkPolicy(p *resource.Policy, v *resource.Validator) {
	if p.Default == nil {
		v.Field("default").Field("appendModifications").Faultf("the list is missing: give at least one modification")
	}
}
