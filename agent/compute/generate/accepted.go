package generate

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Accepted returns the config that an Envoy has after it accepted p, except for the resources that
// findings block.
func (p *Proxy) Accepted(findings []finding.Finding) *Proxy {
	blocked := map[draft.ResourceID]bool{}
	for i := range findings {
		if f := &findings[i]; f.Severity.Blocks() {
			blocked[draft.ResourceID{TypeURL: f.Type, Name: f.Resource}] = true
		}
	}
	if len(blocked) == 0 {
		return p
	}
	return p.substitute(&draft.Sealed{}, nil, blocked)
}

// SameConfig reports whether two proxies are sent the same config, apart from their secrets, which
// are specific to each proxy. Nil is a config without resources.
func SameConfig(a, b *Proxy) bool {
	switch {
	case a == nil || b == nil:
		return a == b
	case a.Sealed == b.Sealed:
		return true
	}
	for rank := range draft.Types {
		if rank != draft.RankSecret && a.Sealed.Versions[rank] != b.Sealed.Versions[rank] {
			return false
		}
	}
	return true
}
