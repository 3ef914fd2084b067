package inspect

import (
	"context"
	"slices"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/finding"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Bounds of the search for the causes of one finding.
const (
	maxCauses      = 8
	maxCauseFields = 3 // of these, for the first ones the field is looked for
	maxOthers      = 8 // resources of the change that are no policies and that are tried
)

// causes says without which resources something would not be found: those of the change first, and of the policies the
// one that acts last. Where it takes the absence of several, those that shape the resource are named.
func (c *verifier) causes(ctx context.Context, g *verifiedGroup) []Cause {
	s := &causeSearch{c: c, ctx: ctx, g: g}
	var acting, before []*resource.Resource
	if m := g.mesh.from; m != nil && m.Policies != nil && m.View.Dataplane(g.id.Name) != nil {
		before = m.Policies.Match(m.View.Dataplane(g.id.Name)).Policies()
	}
	if m := g.mesh.to; m.Policies != nil && g.id.Flavor != node.FlavorGRPC {
		acting = m.Policies.Match(m.View.Dataplane(g.id.Name)).Policies()
	}
	// Policies of the change, those that have ended to act too.
	for _, list := range [...][]*resource.Resource{acting, before} {
		for _, r := range slices.Backward(list) {
			if was, is := c.v.Set.Get(r.Key), c.v.After.Get(r.Key); c.changes(r.Key) && !s.seen(r.Key) {
				s.try(r.Key, is, true, func() *generate.Mesh { return g.mesh.exchange(r.Key, was, is) })
			}
		}
	}
	if len(s.gone) == 0 {
		s.others()
	}
	for _, r := range slices.Backward(acting) {
		if !c.changes(r.Key) {
			s.try(r.Key, r, false, func() *generate.Mesh { return g.mesh.to.Without(r.Key) })
		}
	}
	found := s.gone
	if len(found) == 0 {
		found = s.shapes
	}
	found = found[:min(len(found), maxCauses)]
	out := make([]Cause, 0, len(found))
	for i, f := range found {
		cause := Cause{Ref: Ref{Type: f.key.Kind, Mesh: f.key.Mesh, Name: f.key.Name}, Change: f.change}
		if i < maxCauseFields && len(s.gone) > 0 {
			cause.Field = s.field(f)
		}
		out = append(out, cause)
	}
	return out
}

// changes reports whether a resource is part of the change.
func (c *verifier) changes(k resource.Key) bool { return c.changed[k] }

// exchange is the mesh after the change, but for one policy.
func (m *verifiedMesh) exchange(k resource.Key, was, is *resource.Resource) *generate.Mesh {
	switch {
	case was == nil:
		return m.to.Without(k)
	case is == nil:
		return m.to.WithPolicies(was)
	}
	return m.to.With(was)
}

// causeSearch looks for the causes of one finding, on the first proxy that has it.
type causeSearch struct {
	c            *verifier
	ctx          context.Context
	g            *verifiedGroup
	whole        *generate.Proxy // the config after the change
	inField      bool            // parts of a policy are tried
	tried        []resource.Key
	gone, shapes []suspectCause
}

// suspectCause is a resource without which something is not found, or is found in another resource.
type suspectCause struct {
	key    resource.Key
	is     *resource.Resource // after the change; nil: it is not there
	change bool
}

func (s *causeSearch) seen(k resource.Key) bool { return slices.Contains(s.tried, k) }

func (s *causeSearch) spent() bool { return s.c.trials >= s.c.v.MaxTrials || s.ctx.Err() != nil }

// try finds out what becomes of the finding in another mesh.
func (s *causeSearch) try(k resource.Key, is *resource.Resource, change bool, mesh func() *generate.Mesh) {
	s.tried = append(s.tried, k)
	if s.spent() {
		return
	}
	cause := suspectCause{k, is, change}
	switch gone, shapes := s.without(mesh()); {
	case gone:
		s.gone = append(s.gone, cause)
	case shapes:
		s.shapes = append(s.shapes, cause)
	}
}

// without says whether the finding is gone in a mesh, or at least in a resource with other bytes.
func (s *causeSearch) without(m *generate.Mesh) (gone, shapes bool) {
	if m == nil {
		return true, false
	}
	s.c.trials++
	p, err := s.c.generate(m, s.g.id, nil)
	if err != nil {
		return false, false
	}
	if p == nil {
		return true, false
	}
	id := draft.ResourceID{TypeURL: s.g.found.Type, Name: s.g.found.Resource}
	if s.whole == nil {
		s.whole, _ = s.c.generate(s.g.mesh.to, s.g.id, nil) // it could be made before
	}
	if s.whole != nil && s.g.found.Type != "" {
		a, b := s.whole.Resource(id), p.Resource(id)
		shapes = a != nil && (b == nil || a.Version != b.Version)
	}
	if s.g.found.Rule == RuleOfEnvoy {
		if s.inField || s.c.v.Try == nil { // an Envoy for each part would be too much
			return shapes, shapes
		}
		said, err := s.c.v.Try(s.ctx, p)
		return err == nil && len(fresh(said, []finding.Finding{s.g.found})) > 0, shapes
	}
	return len(fresh(s.c.rules(&s.c.checker, p, s.c.inForce(s.g.id)), []finding.Finding{s.g.found})) > 0, shapes
}

// others tries the resources of the change that are no policies: those that are nearest to the proxy first.
func (s *causeSearch) others() {
	own, mesh := resource.Key{Kind: kindDataplane, Mesh: s.g.id.Mesh, Name: s.g.id.Name}, meshKey(s.g.id.Mesh)
	list := make([]resource.Key, 0, maxOthers)
	policies := policyKinds(s.g.mesh.to)
	for _, k := range append([]resource.Key{own, mesh}, s.c.v.Change...) {
		if s.c.changes(k) && !policies[k.Kind] && !slices.Contains(list, k) && (k.Mesh == s.g.id.Mesh || k == mesh) && len(list) < maxOthers {
			list = append(list, k)
		}
	}
	for _, k := range list {
		if len(s.gone) > 0 {
			return
		}
		was, is := s.c.v.Set.Get(k), s.c.v.After.Get(k)
		if (k == own || k == mesh) && was == nil { // without it there is no proxy, and no finding
			s.gone = append(s.gone, suspectCause{k, is, true})
			return
		}
		s.try(k, is, true, func() *generate.Mesh {
			m, err := s.c.v.NewMesh(exchange(s.c.v.After.All(), k, was), s.g.id.Mesh, s.g.mesh.to)
			if err != nil {
				return s.g.mesh.to // nothing can be said
			}
			return m
		})
	}
}

// policyKinds are the kinds of policies that act in a mesh.
func policyKinds(m *generate.Mesh) map[string]bool {
	out := map[string]bool{}
	if m.Policies == nil {
		return out
	}
	for i := range m.Policies.Plugins {
		kindsOf(&m.Policies.Plugins[i], out)
	}
	return out
}

// field returns the innermost field of a policy that holds all of the cause.
func (s *causeSearch) field(f suspectCause) string {
	m := s.g.mesh.to
	if s.c.v.Decode == nil || f.is == nil || s.spent() || !policyKinds(m)[f.key.Kind] {
		return ""
	}
	s.inField = true
	defer func() { s.inField = false }()
	return findField(f.is, s.c.v.Decode, func(instead *resource.Resource) bool {
		gone, _ := s.without(m.With(instead))
		return gone
	}, s.spent)
}
