package passthrough

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// inForce is InForce in the words that all kinds share; nil where connections do not pass through the proxy unasked.
func inForce(c *policy.Context) *policy.InForce {
	s := InForce(c)
	if s.Mode == "" {
		return nil
	}
	out := &policy.InForce{Kind: kind, Mode: s.Mode, Decides: decides(c, &s)}
	for i := range s.Permits {
		p := &s.Permits[i]
		made := policy.Permit{
			Protocol: p.Protocol, Value: p.Value, Port: p.Port, Cluster: p.Cluster, Pinned: p.Pinned, Reaches: p.reaches(),
			IPv4: p.IPv4, IPv6: p.IPv6,
		}
		for _, from := range p.Sources {
			made.Sources = append(made.Sources, policy.Written{Resource: from.Policy, Field: fmt.Sprintf("spec.default.appendMatch[%d]", from.Index)})
		}
		out.Permits = append(out.Permits, made)
	}
	return out
}

// decides finds what gives the mode, as modeOf does: the strongest policy that has a mode, else that any policy is there.
func decides(c *policy.Context, s *State) policy.Written {
	if len(s.Policies) == 0 {
		return policy.Written{Resource: resource.Key{Kind: kindMesh, Name: c.View.Name}, Field: "networking.outbound.passthrough"}
	}
	origins := c.Rules.Kind(kind).Proxy.Origins
	for i := range slices.Backward(origins) {
		conf := confOf(&origins[i])
		switch at := origins[i].Policy.Key; {
		case conf == nil:
		case conf.PassthroughMode != nil:
			return policy.Written{Resource: at, Field: "spec.default.passthroughMode"}
		case conf.Enabled != nil:
			return policy.Written{Resource: at, Field: "spec.default.enabled"}
		}
	}
	return policy.Written{Resource: origins[len(origins)-1].Policy.Key, Field: "spec.default"}
}

// reaches says which addresses a match leads to. Where the name that a client gives is all there is, it proves nothing
// about the address.
func (p *Permit) reaches() string {
	addr, err := netip.ParseAddr(p.Value)
	if err == nil {
		return "the address " + addr.Unmap().String()
	}
	if net, err := parseNetwork(p.Value); err == nil {
		if net.prefix.Bits() == 0 {
			return "any address"
		}
		return "any address in " + net.prefix.String()
	}
	name, err := parseDomain(p.Value)
	switch {
	case err != nil || name.never():
		return "nothing: no client can give such a name"
	case name.kind == anyTarget:
		return "any address, with any name"
	case p.Pinned:
		return "what the proxy resolves " + p.Value + " to"
	case name.kind == wildcardTarget:
		return "any address, with such a name: a wildcard cannot be resolved"
	}
	return "any address, with that name: without a port it is not resolved"
}
