package passthrough

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// inForce returns the effective mode and permits of a proxy, or nil if the proxy does not intercept
// outbound connections. It does not report dropped matches; apply does.
func inForce(c *policy.Context) *policy.InForce {
	tp := c.Dataplane().Networking.TransparentProxying
	if tp == nil || tp.RedirectPortOutbound == 0 {
		return nil
	}
	out := &policy.InForce{Kind: kind, Mode: ModeNone, Decides: policy.FieldRef{
		Resource: resource.Key{Kind: kindMesh, Name: c.View.Name}, Field: "networking.outbound.passthrough",
	}}
	if c.View.Spec.Passthrough() {
		out.Mode = ModeAll
	}
	if e := newEffect(c); e != nil && e.mode != "" {
		out.Mode, out.Decides, out.Permits = e.mode, decides(c.Rules.Kind(kind).Proxy.Origins), e.permits(c.Dataplane())
	}
	return out
}

// decides returns the field that sets the mode: that of the strongest policy that sets one,
// otherwise the conf of any policy.
func decides(origins []policy.Origin) policy.FieldRef {
	for i := range slices.Backward(origins) {
		conf := confOf(origins[i].Policy)
		switch at := origins[i].Policy.Key; {
		case conf == nil:
		case conf.PassthroughMode != nil:
			return policy.FieldRef{Resource: at, Field: "spec.default.passthroughMode"}
		case conf.Enabled != nil:
			return policy.FieldRef{Resource: at, Field: "spec.default.enabled"}
		}
	}
	return policy.FieldRef{Resource: origins[len(origins)-1].Policy.Key, Field: "spec.default"}
}

// families returns the rules of the address families that a proxy intercepts.
func (e *effect) families(dp *resource.Dataplane) []*ruleSet {
	switch dp.Networking.TransparentProxying.IPFamilyMode {
	case resource.IPFamilyIPv4:
		return []*ruleSet{e.v4}
	case resource.IPFamilyIPv6:
		return []*ruleSet{e.v6}
	}
	return []*ruleSet{e.v4, e.v6}
}

func (e *effect) permits(dp *resource.Dataplane) []policy.Permit {
	var out []policy.Permit
	index := map[string]int{}
	for _, s := range e.families(dp) {
		for _, r := range s.rules {
			i, ok := index[r.name]
			if !ok {
				i = len(out)
				index[r.name] = i
				out = append(out, policy.Permit{Protocol: r.protocol.String(), Value: r.text, Port: r.port, Cluster: r.name,
					Pinned: r.pinned() || r.forwarded(), Reaches: r.reaches()})
			}
			p := &out[i]
			if r.virtual() {
				p.At = append(p.At, r.prefix.Addr())
			}
			p.IPv4, p.IPv6 = p.IPv4 || !s.v6, p.IPv6 || s.v6
			for _, at := range r.matches() {
				if !slices.Contains(p.Sources, at) {
					p.Sources = append(p.Sources, at)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b policy.Permit) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// matches returns the fields that define a rule.
func (r *rule) matches() []policy.FieldRef {
	out := make([]policy.FieldRef, len(r.sources))
	for i, from := range r.sources {
		out[i] = policy.FieldRef{Resource: from.policy, Field: fmt.Sprintf("spec.default.appendMatch[%d]", from.index)}
	}
	return out
}

// reaches describes the addresses to which a rule leads. A name that a client sends proves nothing
// about the address.
func (r *rule) reaches() string {
	switch {
	case r.never():
		return "nothing: no client can send such a name"
	case r.virtual():
		return "the addresses of " + r.resolved + ", resolved by the proxy, for connections to its virtual address"
	case r.kind == addressTarget:
		return "the address " + r.prefix.Addr().String()
	case r.kind == networkTarget && r.anywhere():
		return "any address"
	case r.kind == networkTarget:
		return "any address in " + r.prefix.String()
	case r.kind == anyTarget:
		return "any address, with any name"
	case r.pinned():
		return "the addresses of " + r.text + ", resolved by the proxy"
	case r.forwarded():
		return "the addresses of the client's name, resolved by the proxy"
	case r.kind == wildcardTarget:
		return "any address, with a matching name: the proxy resolves wildcards only if " + labelPinned + " is true"
	}
	return "any address, with that name: the proxy resolves only domains with a port"
}
