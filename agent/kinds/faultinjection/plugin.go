// Package faultinjection is the plugin of MeshFaultInjection, and of FaultInjection, which it replaces: requests that an
// inbound answers with an error, late or slowly, by chance, to show what their clients make of it.
//
// Clients are told by the tags that their proxies send with every request. Whoever sends no tags is hit by the faults
// for all clients alone.
package faultinjection

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const (
	kind       = "MeshFaultInjection"
	legacyKind = "FaultInjection"
)

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	clients := []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset"}
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshfaultinjections", "mfi", resource.PolicyShape{
			Top:       append(clients[:len(clients):len(clients)], "Dataplane"),
			TopToOnly: []string{"MeshGateway"},
			From:      clients,
			To:        []string{"Mesh"},
			NewConf:   func() resource.Conf { return new(Conf) },
			Check:     check,
		})},
		Legacy: []policy.LegacyKind{{
			Descriptor: resource.LegacyDescriptor(legacyKind, "fault-injections", "", resource.LegacyShape{
				NewConf:      func() resource.Conf { return new(LegacyConf) },
				ConfRequired: true,
			}),
			ReplacedBy: []string{kind},
			Inbound:    true,
			Together:   true,
			Migrate:    migrate,
		}},
		Apply: apply,
	}
}

// check refuses to where the policy is about no gateway: it is about the listeners of built-in gateways.
func check(p *resource.Policy, v *resource.Validator) {
	if len(p.To) == 0 || p.TargetRef == nil {
		return
	}
	switch t := p.TargetRef; t.Kind {
	case "MeshService", "MeshServiceSubset", "Dataplane":
		v.Field("to").Faultf("a policy on %s has no to, which is about the listeners of gateways: write from instead, or give a targetRef of MeshGateway", t.Kind)
	default:
		if len(t.ProxyTypes) > 0 && !slices.Contains(t.ProxyTypes, "Gateway") {
			v.Field("to").Faultf("a policy without gateways has no to, which is about their listeners: write from instead, or add Gateway to targetRef.proxyTypes")
		}
	}
}
