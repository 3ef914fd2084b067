package route

import (
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// TCPConf is what a MeshTCPRoute says about the connections to a destination.
type TCPConf struct {
	Rules []TCPRule `json:"rules"` // one: there is nothing to tell connections apart by
}

// TCPRule says where connections go.
type TCPRule struct {
	Default TCPAction `json:"default"`
}

// TCPAction holds the destinations.
type TCPAction struct {
	BackendRefs *[]BackendRef `json:"backendRefs,omitempty"`
}

// Shown implements [policy.ShownConf]: the rule alone, as Kuma shows it.
func (c *TCPConf) Shown() any {
	if len(c.Rules) == 0 {
		return TCPRule{}
	}
	return c.Rules[0]
}

// Validate checks the destinations.
func (c *TCPConf) Validate(v *resource.Validator) {
	at := v.Field("rules")
	if len(c.Rules) != 1 {
		at.Faultf("%d rules are given: give exactly one, as all connections are alike", len(c.Rules))
	}
	for i := range c.Rules {
		refs := toolkit.Or(c.Rules[i].Default.BackendRefs, nil)
		at := at.Index(i).Field("default").Field("backendRefs")
		if len(refs) == 0 {
			at.Faultf("the destinations are missing: give at least one")
		}
		checkBackends(at, refs)
	}
}

// checkTCP checks what goes together with the targetRef of the policy.
func checkTCP(p *resource.Policy, v *resource.Validator) { checkTargets(p, v) }
