package change

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/attribute"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Limits of the search for the causes of one finding.
const (
	maxCauses      = 8
	maxCauseFields = 3 // causes for which the field is searched for
	maxOthers      = 8 // other resources of the change that are tried
)

// causeSearch searches for the causes of one finding on the first proxy that has it.
type causeSearch struct {
	attribute.Search
	*verifier
	g            *group
	whole        *generate.Proxy // the config after the change
	inField      bool            // try parts of a policy
	gone, shapes []api.Cause
	resources    []*resource.Resource // the resources of gone in their state after the change; nil if missing
}

// causes returns the resources without which a finding would not occur: those of the change first,
// and of several policies the last one to apply. If several must be absent, it returns those that
// shape the resource.
func (v *verifier) causes(g *group) []api.Cause {
	s := &causeSearch{verifier: v, g: g}
	s.Search = attribute.Search{ID: g.id, Memo: v.crew[0].memo, Decode: v.Decode, Trials: v.trials,
		Spent: func() bool { return s.Trials >= v.MaxTrials || v.ctx.Err() != nil }}
	defer func() { v.trials = s.Trials }()
	if s.Spent() {
		return []api.Cause{}
	}
	s.whole, _ = g.id.In(g.mesh.to, nil, v.crew[0].memo) // this succeeded before
	s.Prev = s.whole
	acting := attribute.Acting(g.mesh.to, g.id, s.Memo)
	tried := map[resource.Key]bool{}
	// This includes policies of the change that no longer apply.
	for _, list := range [...][]*resource.Resource{acting, attribute.Acting(g.mesh.from, g.id, s.Memo)} {
		for _, r := range slices.Backward(list) {
			if !tried[r.Key] {
				s.change(r.Key)
			}
			tried[r.Key] = true
		}
	}
	own := resource.Key{Kind: kindDataplane, Mesh: g.id.Mesh, Name: g.id.Name}
	s.others(own, meshKey(g.id.Mesh))
	for _, r := range slices.Backward(acting) {
		if !v.changed[r.Key] {
			s.leaveOut(attribute.Of(g.mesh.to, r), false)
		}
	}
	found := s.gone
	if len(found) == 0 {
		found = s.shapes
	}
	found = found[:min(len(found), maxCauses)]
	for i := range s.gone[:min(len(s.gone), maxCauseFields)] {
		if r := s.resources[i]; r != nil && g.mesh.policies[r.Kind] && !s.Spent() {
			s.inField = true
			found[i].Field = s.Field(g.mesh.to, r, func(p *generate.Proxy) bool {
				gone, _ := s.outcome(p)
				return gone
			})
			s.inField = false
		}
	}
	return append([]api.Cause{}, found...)
}

// change tries a resource of the change.
func (s *causeSearch) change(k resource.Key) {
	i := slices.IndexFunc(s.g.mesh.candidates, func(c *candidate) bool { return c.key == k })
	if i < 0 || !s.changed[k] {
		return
	}
	c := s.g.mesh.candidates[i]
	s.leaveOut(attribute.Candidate{Key: k, Resource: c.is,
		Mesh: func() *generate.Mesh { return s.withoutOne(s.g.mesh, c) }}, true)
}

// others tries the resources of the change that are not policies until one is a cause, in order of
// their distance to the proxy.
func (s *causeSearch) others(own, mesh resource.Key) {
	list := make([]resource.Key, 0, maxOthers)
	for _, k := range append([]resource.Key{own, mesh}, s.keys...) {
		if len(list) < maxOthers && s.changed[k] && !s.g.mesh.policies[k.Kind] && !slices.Contains(list, k) &&
			(k.Mesh == s.g.id.Mesh || k == mesh) {
			list = append(list, k)
		}
	}
	for _, k := range list {
		if len(s.gone) > 0 {
			return
		}
		if (k == own || k == mesh) && s.Set.Get(k) == nil { // without it there is no proxy and no finding
			s.found(k, s.after.Get(k), true, true)
		} else {
			s.change(k)
		}
	}
}

// leaveOut tests the finding without a resource.
func (s *causeSearch) leaveOut(c attribute.Candidate, ofChange bool) {
	s.Search.Try([]attribute.Candidate{c}, func(c *attribute.Candidate, _ *generate.Mesh, p *generate.Proxy) bool {
		gone, shapes := s.outcome(p)
		if gone || shapes {
			s.found(c.Key, c.Resource, ofChange, gone)
		}
		return true
	})
}

func (s *causeSearch) found(k resource.Key, is *resource.Resource, ofChange, gone bool) {
	c := api.Cause{Ref: api.RefOf(k), Change: ofChange}
	if gone {
		s.gone, s.resources = append(s.gone, c), append(s.resources, is)
	} else {
		s.shapes = append(s.shapes, c)
	}
}

// outcome reports whether a config lacks the finding, or at least has other bytes for its resource.
// A proxy that does not exist has no findings.
func (s *causeSearch) outcome(p *generate.Proxy) (gone, shapes bool) {
	if p == nil {
		return true, false
	}
	f := &s.g.found
	if s.whole != nil && f.Type != "" {
		id := draft.ResourceID{TypeURL: f.Type, Name: f.Resource}
		a, b := s.whole.Resource(id), p.Resource(id)
		shapes = a != nil && (b == nil || a.Version != b.Version)
	}
	var there []finding.Finding
	switch {
	case f.Rule != RuleOfEnvoy:
		there = p.Check(&s.crew[0].checker, s.crew[0].accepted(s.states.of(s.g.id, s.g.mesh).now, false))
	case s.inField || s.verifier.Try == nil: // asking an Envoy for each part would take too long
		return shapes, shapes
	default:
		var err error
		if there, err = s.verifier.Try(s.ctx, p); err != nil {
			return false, shapes
		}
	}
	return len(fresh(there, []finding.Finding{*f})) > 0, shapes
}
