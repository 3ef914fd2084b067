package attribute

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Bounds of the search for the policies behind rejected resources, of one proxy.
const (
	maxTrials = 256 // configs that are made
	maxBlamed = 16  // policies that are named for one resource
	maxFields = 3   // of these, for the first ones the field is searched for
	maxPaths  = 8
)

// BlameQuestion asks which policies shape resources that a client of one proxy rejects.
type BlameQuestion struct {
	Mesh     *generate.Mesh // in force
	Name     string         // of the dataplane
	Flavor   node.Flavor
	Rejected []draft.Rejection
	// Made is the config that was made for the client last; nil where it is not known.
	Made *generate.Proxy
	// Revision is that of the last change of a policy, 0 for one that is not known. Nil: none is.
	Revision func(resource.Key) uint64
	// Decode reads one resource of its canonical form. Nil: no fields are searched for.
	Decode func([]byte) (*resource.Resource, error)
	// Fields, when not nil, remembers the fields that were found, so that they are not searched for
	// again for other proxies that reject the same.
	Fields map[string]string
}

// FindBlame returns the policies that shape rejected resources, the most likely cause first: those
// without which a resource would have the bytes that were accepted last, then those that were
// changed since, then the others; of the same evidence those that act last, which see what all
// others have made. Where some were changed since, the others are not searched for. A resource that
// no policy shapes has an empty list; one that has other bytes in the config of the mesh by now has
// none.
//
// Of what the agent's own check withholds those come first without which it does not. What follows
// from another withheld resource alone is attributed to the policies behind that one.
func FindBlame(q BlameQuestion) (map[draft.ResourceID][]api.Blame, error) {
	if q.Fields == nil {
		q.Fields = map[string]string{}
	}
	s := &blameSearch{q: q, out: map[draft.ResourceID][]api.Blame{}}
	s.Search = Search{ID: generate.ProxyID{Mesh: q.Mesh.View.Name, Name: q.Name, Flavor: q.Flavor},
		Memo: generate.NewMemo(), Decode: q.Decode,
		Spent: func() bool { return s.Trials >= maxTrials }}
	s.Prev = q.Made
	var err error
	if s.now, err = s.In(q.Mesh); err != nil {
		return nil, err
	}
	s.Prev = s.now
	byCheck := false
	for i := range q.Rejected {
		r := &q.Rejected[i]
		if now := s.now.Resource(r.ID); now != nil && now.Version == r.Resource.Version && r.Cause == (draft.ResourceID{}) {
			s.suspects = append(s.suspects, suspect{Rejection: r})
			byCheck = byCheck || r.By == api.HeldByCheck
		}
	}
	if byCheck {
		s.had = had(s.now, q.Rejected)
	}
	s.withheld = s.refused(s.now)
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
	Search
	q        BlameQuestion
	now      *generate.Proxy // the config with all policies
	suspects []suspect
	checker  check.Checker
	// what the client has, as far as that is known; nil when nothing is asked of the check
	had *generate.Proxy
	// what the check refuses of the config with all policies, nil when nothing is asked of it
	withheld map[draft.ResourceID]bool
	out      map[draft.ResourceID][]api.Blame
}

// suspect is a rejected resource with the policies that shape it.
type suspect struct {
	*draft.Rejection
	owners []owner
}

type owner struct {
	policy   *resource.Resource
	place    int             // in the order of acting
	makes    generate.Change // from the resource as it would be without the policy
	evidence string
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

// changed reports whether a policy was changed since a resource was accepted.
func (s *blameSearch) changed(r *suspect, p *resource.Resource) bool {
	return r.Since > 0 && s.q.Revision != nil && s.q.Revision(p.Key) > r.Since
}

// open reports whether nothing but that policies shape it is known of a suspect.
func (r *suspect) open() bool {
	return !slices.ContainsFunc(r.owners, func(o owner) bool { return o.evidence != api.BlameShapes })
}

// try leaves out the policies that were changed, and the others where that explains nothing; those
// that act last first.
func (s *blameSearch) try() {
	var changed, others []Candidate
	acting := Acting(s.q.Mesh, s.ID)
	for _, p := range slices.Backward(acting) {
		if slices.ContainsFunc(s.suspects, func(r suspect) bool { return s.changed(&r, p) }) {
			changed = append(changed, Of(s.q.Mesh, p))
		} else {
			others = append(others, Of(s.q.Mesh, p))
		}
	}
	for round, list := range [...][]Candidate{changed, others} {
		if !slices.ContainsFunc(s.suspects, func(r suspect) bool { return r.open() }) {
			return
		}
		s.Try(list, func(c *Candidate, _ *generate.Mesh, without *generate.Proxy) bool {
			refused := s.refused(without)
			for _, d := range generate.Difference(without, s.now) {
				i := slices.IndexFunc(s.suspects, func(r suspect) bool { return r.ID == d.ResourceID })
				if i < 0 || round > 0 && !s.suspects[i].open() {
					continue
				}
				r := &s.suspects[i]
				r.owners = append(r.owners,
					owner{c.Resource, slices.Index(acting, c.Resource), d, s.evidence(r, c.Resource, d.From, refused)})
			}
			return true
		})
	}
}

// evidence says how much speaks for it that a policy is the cause; without is the suspect as it
// would be without it.
func (s *blameSearch) evidence(r *suspect, policy *resource.Resource, without *draft.Resource,
	refused map[draft.ResourceID]bool) string {
	alone := without == nil && r.Accepted == nil ||
		without != nil && r.Accepted != nil && without.Version == r.Accepted.Version
	if s.withheld[r.ID] {
		alone = !refused[r.ID]
	}
	switch {
	case alone:
		return api.BlameAlone
	case s.changed(r, policy):
		return api.BlameChanged
	}
	return api.BlameShapes
}

// conclude ranks the owners of a suspect and finds the fields and paths.
func (s *blameSearch) conclude(r *suspect) error {
	rank := func(o owner) int {
		return slices.Index([]string{api.BlameAlone, api.BlameChanged, api.BlameShapes}, o.evidence)
	}
	slices.SortStableFunc(r.owners, func(a, b owner) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.place, a.place))
	})
	list := []api.Blame{}
	for i, o := range r.owners[:min(len(r.owners), maxBlamed)] {
		b := api.Blame{Type: o.policy.Kind, Mesh: o.policy.Mesh, Name: o.policy.Name, Evidence: o.evidence, Paths: []string{}}
		if i < maxFields {
			var err error
			if b.Paths, err = pathsOf(&o.makes, maxPaths); err != nil {
				return err
			}
			b.Field = s.field(o.policy)
		}
		list = append(list, b)
	}
	s.out[r.ID] = list
	return nil
}

// field returns the innermost field of a policy that holds all of what shapes the suspects; of
// those that the check withholds for this policy alone, all of what is withheld.
func (s *blameSearch) field(policy *resource.Resource) string {
	key := fmt.Sprintf("%s %x", policy.Key, policy.Digest) // the same on proxies that reject resources of the same role
	evidence := map[draft.ResourceID]string{}
	for _, r := range s.suspects {
		if i := slices.IndexFunc(r.owners, func(o owner) bool { return o.policy == policy }); i >= 0 {
			evidence[r.ID] = r.owners[i].evidence
			key += fmt.Sprintf(" %s %s %s", r.By, r.ID.TypeURL, role(r.ID.Name))
		}
	}
	if path, ok := s.q.Fields[key]; ok {
		return path
	}
	s.q.Fields[key] = s.Field(s.q.Mesh, policy, func(p *generate.Proxy) bool {
		refused := s.refused(p)
		return slices.ContainsFunc(s.suspects, func(r suspect) bool {
			how, shapes := evidence[r.ID]
			if s.withheld[r.ID] && how == api.BlameAlone {
				return !refused[r.ID]
			}
			now := p.Resource(r.ID)
			return shapes && (now == nil || now.Version != r.Resource.Version)
		})
	})
	return s.q.Fields[key]
}

// role is a name without the address of the proxy: inbound:10.0.0.1:80 is inbound:80.
func role(name string) string {
	first, _, _ := strings.Cut(name, ":")
	if last := strings.LastIndexByte(name, ':'); last > len(first) {
		return first + name[last:]
	}
	return name
}

// had returns a config that holds, in place of what a client rejects of p and of what is withheld
// from it, the forms that it accepted last. It is there to be compared with: its lists have no
// versions.
func had(p *generate.Proxy, rejected []draft.Rejection) *generate.Proxy {
	form := make(map[draft.ResourceID]*draft.Resource, len(rejected))
	for i := range rejected {
		form[rejected[i].ID] = rejected[i].Accepted
	}
	out := *p
	out.Sealed = &draft.Sealed{}
	for rank, list := range p.Sealed.Resources {
		for _, r := range list {
			if accepted, is := form[draft.ResourceID{TypeURL: draft.Types[rank], Name: r.Name}]; is {
				r = accepted
			}
			if r != nil {
				out.Sealed.Resources[rank] = append(out.Sealed.Resources[rank], r)
			}
		}
	}
	return &out
}
