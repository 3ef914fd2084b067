package route

import "github.com/nearside-mesh/nearside/agent/policy"

// PathMatches implements [policy.PathConf].
func (c *HTTPConf) PathMatches() []policy.PathMatch {
	var out []policy.PathMatch
	for i := range c.Rules {
		for _, m := range c.Rules[i].Matches {
			p := policy.PathMatch{Type: policy.PathPrefix, Value: "/"}
			if m.Path != nil {
				p = policy.PathMatch{Type: m.Path.Type, Value: m.Path.Value}
			}
			out = append(out, p)
		}
	}
	return out
}
