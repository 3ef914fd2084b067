package effect

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Then returns the verdict about the proxies of v followed by those of next. It is for callers that
// ask about a mesh in several steps.
func (v MeshVerdict) Then(next MeshVerdict) MeshVerdict {
	selected := v.Selected + next.Selected
	switch {
	case v.InForce():
		return v
	case next.InForce(), v.Dataplane == "", next.Dataplane != "" && rankOf(&next.Verdict) > rankOf(&v.Verdict):
		v = next
	}
	v.Selected = selected
	return v
}

// Lacking reports whether the policy has no effect on any proxy although it selects some, so that
// it deserves a warning. A policy that sets the same value as another one or the default is
// correct, and one whose change an Envoy was not given has another problem.
func (v *MeshVerdict) Lacking() bool {
	return v.Effect == api.EffectNone && v.Held == "" && v.Selected > 0
}

// Warning describes a policy that selects proxies and has no effect on any.
func (v *MeshVerdict) Warning() string {
	out := "no effect on any proxy"
	switch {
	case v.Reason != "":
		return out + ": " + v.Reason
	case len(v.By) > 0:
		names := make([]string, len(v.By))
		for i, by := range v.By {
			names[i] = by.String()
		}
		return out + ": overridden by " + strings.Join(names, ", ")
	}
	return out + ": leaving it out changes no config"
}
