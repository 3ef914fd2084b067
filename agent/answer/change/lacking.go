package change

import (
	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// lackingTrials limits the configs that are generated per mesh to find policies without effect.
const lackingTrials = 2000

// Lacking adds warnings about the policies of the change that have no effect on any proxy to
// v.Warnings, instead of warnings that they contain. It returns the number of policies that it
// could not examine. It generates at least one config per policy, so it is separate from the check.
// It ends when stop returns true; nil: it never does.
func (v *Verified) Lacking(stop func() bool) (unknown int) {
	s := v.states
	if s == nil {
		return 0
	}
	by := map[string]*effect.Examiner{}
	added := 0
	for _, k := range v.keys {
		r := s.after.Get(k)
		if r == nil || r.Mesh == "" || r.Shadow() {
			continue
		}
		m, err := s.mesh(r.Mesh)
		if err != nil || m.to == nil || m.to.Policies == nil || !m.policies[k.Kind] {
			continue
		}
		if stop != nil && stop() {
			unknown++
			continue
		}
		x := by[r.Mesh]
		if x == nil {
			x = effect.New(m.to, effect.Options{Decode: s.Decode, Trials: lackingTrials, Stop: stop})
			by[r.Mesh] = x
		}
		switch verdict, lacks := x.Lacks(r); {
		case verdict.Effect == api.EffectUnknown && verdict.Selected > 0:
			unknown++
		case lacks && added < s.MaxWarnings:
			added++
			v.Warnings = effect.WithLacking(v.Warnings, r, &verdict)
		}
	}
	return unknown
}
