package proxypatch

import "github.com/nearside-mesh/nearside/agent/compute/policy"

// behind lists the patches without which a listener or cluster would be another one.
func behind(f *policy.Flow, legacyKind string) []policy.Written {
	if f.Rules.Kind(Kind) == nil && f.Rules.LegacyProxy(legacyKind) == nil {
		return nil
	}
	var out []policy.Written
	for _, k := range f.Owners() {
		switch k.Kind {
		case Kind:
			out = append(out, policy.Written{Resource: k, Field: "spec.default.appendModifications"})
		case legacyKind:
			out = append(out, policy.Written{Resource: k, Field: "conf"})
		}
	}
	return out
}
