package proxypatch

import "github.com/nearside-mesh/nearside/agent/compute/policy"

// behind returns the patches that affect a listener or cluster of the flow.
func behind(f *policy.Flow, legacyKind string) []policy.FieldRef {
	if f.Rules.Kind(Kind) == nil && f.Rules.LegacyProxy(legacyKind) == nil {
		return nil
	}
	var out []policy.FieldRef
	for _, k := range f.Owners() {
		switch k.Kind {
		case Kind:
			out = append(out, policy.FieldRef{Resource: k, Field: "spec.default.appendModifications"})
		case legacyKind:
			out = append(out, policy.FieldRef{Resource: k, Field: "conf"})
		}
	}
	return out
}
