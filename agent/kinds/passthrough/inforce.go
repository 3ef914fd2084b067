package passthrough

import (
	"cmp"
	"slices"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// State is what is in force for one proxy.
type State struct {
	// Mode is ModeAll, ModeMatched or ModeNone; "" where connections do not pass through the proxy unasked.
	Mode string
	// Policies are those that decide, each stronger than the ones before. Empty: the Mesh does.
	Policies []resource.Key
	Permits  []Permit // with ModeMatched, in the order of protocol, value and port
}

// Permit is one match in force.
type Permit struct {
	Protocol   string
	Value      string
	Port       uint32 // 0: all ports
	Cluster    string // that counts what it permits
	Pinned     bool   // the proxy resolves the domain itself, so that the name leads nowhere else
	IPv4, IPv6 bool   // the address families in which it acts
	Sources    []Source
}

// Source is where a match is written.
type Source struct {
	Policy resource.Key
	Index  int // in spec.default.appendMatch
}

// InForce returns what of the policies is in force for a proxy. It needs View, Dataplane and Rules of the context; what
// is left out, and why, is reported where the policies are applied.
func InForce(c *policy.Context) State {
	tp := c.Dataplane.Networking.TransparentProxying
	if tp == nil || tp.RedirectPortOutbound == 0 {
		return State{}
	}
	byMesh := State{Mode: ModeNone}
	if c.View.Spec.Passthrough() {
		byMesh.Mode = ModeAll
	}
	rules := c.Rules.Kind(kind)
	if rules == nil || rules.Proxy == nil || len(rules.Proxy.Origins) == 0 {
		return byMesh
	}
	e := newEffect(c, rules.Proxy.Origins)
	if e.mode == "" {
		return byMesh
	}
	out := State{Mode: e.mode}
	for _, o := range rules.Proxy.Origins {
		out.Policies = append(out.Policies, o.Policy.Key)
	}
	out.Permits = e.permits(tp.IPFamilyMode)
	return out
}

func (e *effect) permits(families string) []Permit {
	var out []Permit
	index := map[string]int{}
	for _, s := range []*ruleSet{e.v4, e.v6} {
		if s.v6 && families == resource.IPFamilyIPv4 || !s.v6 && families == resource.IPFamilyIPv6 {
			continue
		}
		for _, r := range s.rules {
			i, ok := index[r.name]
			if !ok {
				i = len(out)
				index[r.name] = i
				out = append(out, Permit{Protocol: r.protocol.String(), Value: r.text, Port: r.port, Cluster: r.name, Pinned: r.pinned()})
			}
			p := &out[i]
			p.IPv4, p.IPv6 = p.IPv4 || !s.v6, p.IPv6 || s.v6
			for _, from := range r.sources {
				if at := (Source{from.policy, from.index}); !slices.Contains(p.Sources, at) {
					p.Sources = append(p.Sources, at)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Permit) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Port, b.Port))
	})
	return out
}
