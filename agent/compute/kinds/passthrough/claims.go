package passthrough

import (
	"net/netip"
	"slices"
)

// claims tracks the request protocols of the rules of one policy, in which requests to the same
// addresses on one port must have one protocol. Rules of several policies need not: Envoy selects
// one filter chain for all of them, and its virtual hosts lead to clusters of different protocols.
type claims struct {
	scopes map[netip.Prefix]map[uint32]*rule // first rule by addresses (zero for any) and port
}

// take claims the protocol for a rule of requests. If whole is set, another rule has claimed all of
// it, and the rule has no effect. Otherwise others are the rules that have claimed some of its
// ports.
func (c *claims) take(r *rule) (whole *rule, others []*rule) {
	if r.protocol.class() != requests {
		return nil, nil
	}
	scope := r.identity().prefix
	ports := c.scopes[scope]
	switch first := ports[r.port]; {
	case first != nil && first.protocol != r.protocol:
		return first, nil
	case first != nil:
		return nil, nil
	}
	if all := ports[0]; all != nil && all.protocol != r.protocol {
		return all, nil
	}
	if r.port == 0 {
		for _, o := range ports {
			if o.protocol != r.protocol {
				others = append(others, o)
			}
		}
		slices.SortFunc(others, func(a, b *rule) int { return int(a.port) - int(b.port) })
	}
	if ports == nil {
		ports = map[uint32]*rule{}
		if c.scopes == nil {
			c.scopes = map[netip.Prefix]map[uint32]*rule{}
		}
		c.scopes[scope] = ports
	}
	ports[r.port] = r
	return nil, others
}
