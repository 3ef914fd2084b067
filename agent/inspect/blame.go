package inspect

import (
	"cmp"
	"slices"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/load"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// Bounds of the search for those who shape rejected resources, of one proxy.
const (
	maxBlameTrials = 256 // configs that are made
	maxBlamed      = 16  // policies that are named for one resource
	maxBlameFields = 3   // of these, for the first ones the field is looked for
	maxBlamePaths  = 8
)

// BlameQuestion asks who shapes resources that a client of one proxy rejects.
type BlameQuestion struct {
	Mesh     *generate.Mesh // in force
	Name     string         // of the dataplane
	Flavor   node.Flavor
	Rejected []xds.Rejection
	// Revision is that of the last change of a policy, 0 for one that is not known. Nil: none is.
	Revision func(resource.Key) uint64
	// Decode reads one resource of its canonical form. Nil: no fields are looked for.
	Decode func([]byte) (*resource.Resource, error)
	// Fields, when not nil, keeps the fields that were found, so that they are not looked for again for other proxies
	// that reject the same.
	Fields map[string]string
}

// FindBlame says which policies shape rejected resources, the most likely cause first: those without which a resource
// would have the bytes that were accepted last, then those that were changed since, then the others; of the same
// evidence those that act last, which see what all others have made. Where some were changed since, the others are not
// looked for. A resource that no policy shapes has an empty list; one that has other bytes in the config of the
// mesh by now has none.
//
// Of what the agent's own check refuses those come first without which it does not. What follows from another refused
// resource alone is put down to those behind that one.
//
// It is pure. The config is made anew for each policy in question, so it is for rejections and not for every pass.
func FindBlame(q BlameQuestion) (map[draft.ResourceID][]xds.Blame, error) {
	if q.Fields == nil {
		q.Fields = map[string]string{}
	}
	s := &blameSearch{q: q, memo: generate.NewMemo(), out: map[draft.ResourceID][]xds.Blame{}}
	p, err := s.generate(q.Mesh)
	if err != nil {
		return nil, err
	}
	s.now = p
	for i := range q.Rejected {
		r := &q.Rejected[i]
		if now := p.Resource(r.ID); now != nil && now.Version == r.Resource.Version && r.Cause == (draft.ResourceID{}) {
			s.suspects = append(s.suspects, suspect{Rejection: r})
		}
	}
	if len(s.suspects) == 0 {
		return s.out, nil
	}
	if slices.ContainsFunc(s.suspects, func(r suspect) bool { return r.By == xds.HeldByCheck }) {
		s.had = had(p, q.Rejected)
	}
	s.unfit = s.refused(p)
	s.try()
	for i := range s.suspects {
		if err := s.conclude(&s.suspects[i]); err != nil {
			return nil, err
		}
	}
	for i := range q.Rejected {
		r := &q.Rejected[i]
		if list, ok := s.out[r.Cause]; ok && r.Cause != (draft.ResourceID{}) {
			s.out[r.ID] = list
		}
	}
	return s.out, nil
}

// blameSearch is the search for one proxy.
type blameSearch struct {
	q        BlameQuestion
	memo     *generate.Memo
	trials   int
	now      *generate.Proxy // the config with all policies
	suspects []suspect
	checker  load.Checker
	had      *generate.Proxy           // what the client has, as far as that can be told; nil when nothing is asked of the check
	unfit    map[draft.ResourceID]bool // what the check refuses of the config with all policies, nil when nothing is asked of it
	out      map[draft.ResourceID][]xds.Blame
}

// suspect is a rejected resource with those who shape it.
type suspect struct {
	*xds.Rejection
	owners []owner
}

type owner struct {
	policy   *resource.Resource
	place    int             // in the order of acting
	makes    generate.Change // from the resource as it would be without the policy
	evidence string
}

func (s *blameSearch) generate(m *generate.Mesh) (*generate.Proxy, error) {
	s.trials++
	return generate.Generate(generate.Input{Mesh: m, Name: s.q.Name, Flavor: s.q.Flavor}, nil, s.memo)
}

// refused returns what the check refuses of a config, nil when no suspect is one of the check.
func (s *blameSearch) refused(p *generate.Proxy) map[draft.ResourceID]bool {
	if s.had == nil {
		return nil
	}
	out := map[draft.ResourceID]bool{}
	for _, r := range generate.Withheld(p.Check(&s.checker, s.had.Sealed)) {
		out[r.ID] = true
	}
	return out
}

func (s *blameSearch) revision(k resource.Key) uint64 {
	if s.q.Revision == nil {
		return 0
	}
	return s.q.Revision(k)
}

// changed says whether a policy was changed since a resource was accepted.
func (s *blameSearch) changed(r *suspect, p *resource.Resource) bool {
	return r.Since > 0 && s.revision(p.Key) > r.Since
}

// try leaves out one policy after the other: first those that were changed, and the others where that explains nothing.
func (s *blameSearch) try() {
	m := s.q.Mesh
	dp := m.View.Dataplane(s.q.Name)
	if m.Policies == nil || dp == nil || s.q.Flavor == node.FlavorGRPC {
		return
	}
	var later []int
	acting := m.Policies.Match(dp).Policies()
	for i := len(acting) - 1; i >= 0; i-- {
		if slices.ContainsFunc(s.suspects, func(r suspect) bool { return s.changed(&r, acting[i]) }) {
			s.leaveOut(acting[i], i, func(*suspect) bool { return true })
		} else {
			later = append(later, i)
		}
	}
	open := func(r *suspect) bool {
		return !slices.ContainsFunc(r.owners, func(o owner) bool { return o.evidence != xds.BlameShapes })
	}
	if slices.ContainsFunc(s.suspects, func(r suspect) bool { return open(&r) }) {
		for _, i := range later {
			s.leaveOut(acting[i], i, open)
		}
	}
}

// leaveOut makes a policy an owner of those suspects that would be another thing without it.
func (s *blameSearch) leaveOut(policy *resource.Resource, place int, of func(*suspect) bool) {
	if s.trials >= maxBlameTrials {
		return
	}
	p, err := s.generate(s.q.Mesh.Without(policy.Key))
	if err != nil {
		return // nothing can be said
	}
	unfit := s.refused(p)
	for _, c := range generate.Difference(p, s.now) {
		i := slices.IndexFunc(s.suspects, func(r suspect) bool { return r.ID == c.ResourceID })
		if i < 0 || !of(&s.suspects[i]) {
			continue
		}
		r := &s.suspects[i]
		o := owner{policy: policy, place: place, makes: c, evidence: xds.BlameShapes}
		switch {
		case s.unfit[r.ID]:
			if !unfit[r.ID] {
				o.evidence = xds.BlameAlone
			}
		case c.From == nil && r.Accepted == nil, c.From != nil && r.Accepted != nil && c.From.Version == r.Accepted.Version:
			o.evidence = xds.BlameAlone
		}
		if o.evidence == xds.BlameShapes && s.changed(r, policy) {
			o.evidence = xds.BlameChanged
		}
		r.owners = append(r.owners, o)
	}
}

// conclude ranks the owners of a suspect and finds the fields and places.
func (s *blameSearch) conclude(r *suspect) error {
	rank := func(o owner) int {
		return slices.Index([]string{xds.BlameAlone, xds.BlameChanged, xds.BlameShapes}, o.evidence)
	}
	slices.SortStableFunc(r.owners, func(a, b owner) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.place, a.place))
	})
	list := []xds.Blame{}
	for i, o := range r.owners[:min(len(r.owners), maxBlamed)] {
		b := xds.Blame{Type: o.policy.Kind, Mesh: o.policy.Mesh, Name: o.policy.Name, Evidence: o.evidence, Paths: []string{}}
		if i < maxBlameFields {
			var err error
			if b.Paths, err = pathsOf(&o.makes); err != nil {
				return err
			}
			b.Field = s.field(o.policy)
		}
		list = append(list, b)
	}
	s.out[r.ID] = list
	return nil
}

// pathsOf says where in a resource a change is.
func pathsOf(c *generate.Change) ([]string, error) {
	out := []string{}
	if c.From == nil {
		return out, nil
	}
	renderer, err := generate.NewRenderer()
	if err != nil {
		return nil, err
	}
	from, to, err := renderer.Both(c)
	if err != nil {
		return nil, err
	}
	a, err := jsonpatch.Decode(from)
	if err != nil {
		return nil, err
	}
	b, err := jsonpatch.Decode(to)
	if err != nil {
		return nil, err
	}
	for _, f := range fieldDiffs(a, jsonpatch.Diff(a, b), 0) {
		if len(out) == maxBlamePaths {
			break
		}
		if !slices.Contains(out, f.Path) {
			out = append(out, f.Path)
		}
	}
	return out, nil
}
