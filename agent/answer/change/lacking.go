package change

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// lackingTrials limits the configs that are generated per mesh to find policies without effect.
const lackingTrials = 2000

// Lacking returns warnings about the policies of the change that have no effect on any proxy, and
// the number of policies that it could not examine. It removes warnings that they contain from
// v.Warnings. It generates at least one config per policy, so it is separate from the check. It
// ends when stop returns true; nil: it never does.
func (v *Verified) Lacking(stop func() bool) (out []mesh.Warning, unknown int) {
	s := v.states
	if s == nil {
		return nil, 0
	}
	by := map[string]*effect.Examiner{}
	for _, k := range v.keys {
		r := s.after.Get(k)
		if r == nil || r.Mesh == "" || r.Shadow() {
			continue
		}
		x := by[r.Mesh]
		if x == nil {
			m, err := s.mesh(r.Mesh)
			if err != nil || m.to == nil || m.to.Policies == nil {
				continue
			}
			x = effect.New(m.to, effect.Options{Decode: s.Decode, Trials: lackingTrials, Stop: stop})
			by[r.Mesh] = x
		}
		switch verdict := x.InMesh(r, nil); {
		case verdict.Effect == api.EffectUnknown && verdict.Selected > 0:
			unknown++
		case verdict.Unexplained() && effect.Supersedes(s.meshes[r.Mesh].to, r):
		case verdict.Lacking() && len(out) < s.MaxWarnings:
			var others []string
			for _, w := range v.Warnings {
				if w.Resource == k {
					others = append(others, w.Reason)
				}
			}
			reason := effect.Because(verdict.Warning(), others)
			out = append(out, mesh.Warning{Resource: r.Key, Reason: reason})
			v.Warnings = slices.DeleteFunc(v.Warnings, func(w mesh.Warning) bool {
				return w.Resource == k && strings.Contains(reason, w.Reason)
			})
		}
	}
	return out, unknown
}
