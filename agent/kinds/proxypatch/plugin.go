// Package proxypatch is the plugin of MeshProxyPatch, and of ProxyTemplate, which it replaces: changes of Envoy's own
// messages, for what no other kind says.
//
// Its policies act last, on listeners, clusters, virtual hosts, network filters and HTTP filters that all others have
// made. A modification adds, removes, merges a message into another one, or applies a JSON Patch. Values are read
// strictly when a policy is applied: an unknown field, an unknown type or what Envoy would refuse is a fault with its
// path.
//
// Whether a patch fits shows only on the resource that it patches. Of each resource a policy changes all that it wants
// or nothing: where a patch fails, or what comes out would be refused by Envoy, the resource stays without that policy,
// and a warning names it.
package proxypatch

import (
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const (
	kind       = "MeshProxyPatch"
	legacyKind = "ProxyTemplate"
)

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshproxypatches", "mpp", resource.PolicyShape{
			Top:     []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "MeshGateway", "Dataplane"},
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy,
		})},
		Legacy: []policy.LegacyKind{{
			Descriptor: resource.LegacyDescriptor(legacyKind, "proxytemplates", "", resource.LegacyShape{
				Selectors: true, NewConf: func() resource.Conf { return new(LegacyConf) }, ConfRequired: true,
			}),
			ReplacedBy: []string{kind},
			Migrate:    migrate,
		}},
		Apply: apply,
	}
}

// checkPolicy finds policies that say nothing.
func checkPolicy(p *resource.Policy, v *resource.Validator) {
	if p.Default == nil {
		v.Field("default").Field("appendModifications").Faultf("the list is missing: give at least one modification")
	}
}
