// Package faultinjection is the plugin of MeshFaultInjection: requests that an inbound answers with an error, late or
// slowly, by chance, to show what their clients make of it.
//
// Clients are told by the tags that their proxies send with every request. Whoever sends no tags is hit by the faults
// for all clients alone.
package faultinjection

import (
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Kind is the kind of the plugin's policies.
const Kind = "MeshFaultInjection"

const nameFault = "envoy.filters.http.fault"

// Plugin declares the kind and its effect, beside the kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshfaultinjections", "mfi", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway"},
			From:      toolkit.Clients(),
			To:        []string{"Mesh"},
			NewConf:   func() resource.Conf { return new(Conf) },
			Check:     func(p *resource.Policy, v *resource.Validator) { toolkit.ToOfGateways(p, v, "MeshGateway") },
		})},
		Legacy:  legacy,
		Filters: []string{nameFault},
		Apply:   apply,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(Kind)
	if c.Last {
		toolkit.WarnToOfGateways(c, rules, "inject faults where requests arrive")
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		if in := rules.Inbound(l.Inbound); in != nil {
			Inject(l, ofRules(in.Rules))
		}
	}
}

// Inject puts filters before the routing of the requests of an inbound.
func Inject(l *draft.Listener, filters []draft.Extension) {
	for _, ch := range l.Chains {
		if ch.HTTP != nil && len(filters) > 0 {
			toolkit.BeforeRouter(ch.HTTP, filters...)
		}
	}
}

// ofRules makes the filters of an inbound: those for the narrowest groups of clients come first.
func ofRules(rules []*policy.Rule) []draft.Extension {
	var out []draft.Extension
	for _, r := range rules {
		conf := toolkit.Conf[Conf](r)
		if conf == nil || conf.HTTP == nil {
			continue
		}
		clients := ofSubset(r.Subset)
		for i := range *conf.HTTP {
			out = append(out, (*conf.HTTP)[i].Filter(clients))
		}
	}
	return out
}
