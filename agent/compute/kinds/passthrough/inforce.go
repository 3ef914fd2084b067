package passthrough

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// inForce returns what is in force for a proxy, nil where connections do not pass through the proxy
// unasked. What is left out, and why, is reported where the policies are applied.
func inForce(c *policy.Context) *policy.InForce {
	tp := c.Dataplane().Networking.TransparentProxying
	if tp == nil || tp.RedirectPortOutbound == 0 {
		return nil
	}
	out := &policy.InForce{Kind: kind, Mode: ModeNone, Decides: policy.Written{
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

// decides finds what gives the mode: the strongest policy that has one, else that any policy is
// there.
func decides(origins []policy.Origin) policy.Written {
	for i := range slices.Backward(origins) {
		conf := confOf(origins[i].Policy)
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

// families returns the rules for the address families that a proxy intercepts.
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

// matches are the places where a rule is written.
func (r *rule) matches() []policy.Written {
	out := make([]policy.Written, len(r.sources))
	for i, from := range r.sources {
		out[i] = policy.Written{Resource: from.policy, Field: fmt.Sprintf("spec.default.appendMatch[%d]", from.index)}
	}
	return out
}

// reaches says which addresses a rule leads to. Where the name that a client gives is all there is,
// it proves nothing about the address.
func (r *rule) reaches() string {
	switch {
	case r.never():
		return "nothing: no client can give such a name"
	case r.virtual():
		return "what the proxy resolves " + r.past + " to, for connections to its virtual address"
	case r.kind == addressTarget:
		return "the address " + r.prefix.Addr().String()
	case r.kind == networkTarget && r.anywhere():
		return "any address"
	case r.kind == networkTarget:
		return "any address in " + r.prefix.String()
	case r.kind == anyTarget:
		return "any address, with any name"
	case r.pinned():
		return "what the proxy resolves " + r.text + " to"
	case r.forwarded():
		return "what it resolves the name of the client to"
	case r.kind == wildcardTarget:
		return "any address, with such a name: a wildcard is resolved only where " + labelPinned + " is true"
	}
	return "any address, with that name: without a port it is not resolved"
}

// noEffect says what of a policy has no effect on a proxy: all of it, or matches that no filter
// chain is made for.
func noEffect(c *policy.Context, p *resource.Resource) []policy.NoEffect {
	e, conf := newEffect(c), confOf(p)
	switch {
	case e == nil || conf == nil:
		return nil
	case !e.intercepts || e.mode == "":
		return []policy.NoEffect{{}}
	}
	used := map[source]bool{}
	if e.mode == ModeMatched {
		for _, s := range e.families(c.Dataplane()) {
			for _, ch := range s.plan(&notes{}) {
				for _, r := range ch.rules() {
					for _, from := range r.sources {
						from.pin = false
						used[from] = used[from] || !r.never()
					}
				}
			}
		}
	}
	n := 0
	for i := range conf.AppendMatch {
		if used[source{policy: p.Key, index: i}] {
			n++
		}
	}
	if n == len(conf.AppendMatch) {
		return nil
	}
	return []policy.NoEffect{{Field: "spec.default.appendMatch", Part: n > 0}}
}
