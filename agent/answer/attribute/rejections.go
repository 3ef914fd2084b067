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

// Limits of the search for the policies behind the rejected resources of one proxy.
const (
	maxTrials = 256 // configs generated
	maxBlamed = 16  // policies reported for one resource
	maxFields = 3   // policies for which the field is searched, the most likely first
	maxPaths  = 8
)

// BlameQuestion asks which policies shape the resources that an Envoy rejected or the check
// withheld.
type BlameQuestion struct {
	Mesh     *generate.Mesh // the current mesh
	Name     string         // name of the dataplane
	Flavor   node.Flavor
	Rejected []draft.Rejection
	// Last is the config that was last computed for the proxy; nil if unknown.
	Last *generate.Proxy
	// Revision returns the revision of the last change of a policy, 0 if unknown. It may be nil.
	Revision func(resource.Key) uint64
	// Decode reads the canonical JSON of a resource; nil disables the search for fields.
	Decode func([]byte) (*resource.Resource, error)
	// Fields caches the fields found, so that they are not searched for again for other proxies
	// with the same rejection. It may be nil.
	Fields map[string]string
}

// FindBlame returns the policies that shape rejected resources, the most likely cause first:
//
//   - policies without which a resource would equal the last accepted version;
//   - policies that changed since the resource was accepted;
//   - all other policies.
//
// Among equal evidence, policies that are applied later come first. If a changed policy explains a
// resource, the others are not tried. A resource that no policy shapes has an empty list. A
// resource whose bytes have changed since the rejection is not in the result.
//
// For a resource that the agent's check withholds, policies without which the check accepts it come
// first. For a resource that is withheld only because of another one, it returns the policies of
// the other one.
func FindBlame(q BlameQuestion) (map[draft.ResourceID][]api.Blame, error) {
	if q.Fields == nil {
		q.Fields = map[string]string{}
	}
	s := &blameSearch{q: q, out: map[draft.ResourceID][]api.Blame{}}
	s.Search = Search{ID: generate.ProxyID{Mesh: q.Mesh.View.Name, Name: q.Name, Flavor: q.Flavor},
		Memo: generate.NewMemo(), Decode: q.Decode,
		Spent: func() bool { return s.Trials >= maxTrials }}
	s.Prev = q.Last
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
		s.accepted = acceptedConfig(s.now, q.Rejected)
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
	// the accepted forms, as far as known; nil if no suspect is withheld by the check
	accepted *generate.Proxy
	// resources that the check rejects with all policies active; nil like accepted
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
	order    int             // index in the order of application
	change   generate.Change // from the resource without the policy to the current one
	evidence string
}

// refused returns the resources of a config that the check rejects, nil if no suspect is withheld
// by the check.
func (s *blameSearch) refused(p *generate.Proxy) map[draft.ResourceID]bool {
	if s.accepted == nil {
		return nil
	}
	out := map[draft.ResourceID]bool{}
	for _, r := range generate.Withheld(p.Check(&s.checker, s.accepted.Sealed)) {
		out[r.ID] = true
	}
	return out
}

// changed reports whether a policy changed after the suspect was last accepted.
func (s *blameSearch) changed(r *suspect, p *resource.Resource) bool {
	return r.Since > 0 && s.q.Revision != nil && s.q.Revision(p.Key) > r.Since
}

// open reports whether no policy with strong evidence has been found for the suspect.
func (r *suspect) open() bool {
	return !slices.ContainsFunc(r.owners, func(o owner) bool { return o.evidence != api.BlameShapes })
}

// try tests the changed policies, and then the others for suspects without an explanation. Policies
// that are applied last are tested first.
func (s *blameSearch) try() {
	var changed, others []Candidate
	acting := Acting(s.q.Mesh, s.ID, s.Memo)
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

// evidence classifies how strongly a policy is the cause. without is the suspect's resource in the
// config without the policy.
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

// conclude ranks the owners of a suspect and finds their fields and paths.
func (s *blameSearch) conclude(r *suspect) error {
	rank := func(o owner) int {
		return slices.Index([]string{api.BlameAlone, api.BlameChanged, api.BlameShapes}, o.evidence)
	}
	slices.SortStableFunc(r.owners, func(a, b owner) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.order, a.order))
	})
	list := []api.Blame{}
	for i, o := range r.owners[:min(len(r.owners), maxBlamed)] {
		b := api.Blame{Type: o.policy.Kind, Mesh: o.policy.Mesh, Name: o.policy.Name, Evidence: o.evidence, Paths: []string{}}
		if i < maxFields {
			var err error
			if b.Paths, err = pathsOf(&o.change, maxPaths); err != nil {
				return err
			}
			b.Field = s.field(o.policy)
		}
		list = append(list, b)
	}
	s.out[r.ID] = list
	return nil
}

// field returns the innermost field of a policy without which the suspects would have different
// bytes. For suspects that are withheld because of this policy only, it is the field without which
// the check accepts them.
func (s *blameSearch) field(policy *resource.Resource) string {
	key := fmt.Sprintf("%s %x", policy.Key, policy.Digest) // equal for proxies that reject resources with the same role
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

// role returns a resource name without the proxy's address: inbound:10.0.0.1:80 becomes inbound:80.
func role(name string) string {
	first, _, _ := strings.Cut(name, ":")
	if last := strings.LastIndexByte(name, ':'); last > len(first) {
		return first + name[last:]
	}
	return name
}

// acceptedConfig returns p with each rejected resource replaced by the form that the client
// accepted last. Use it only for comparison: the versions of its lists are not set.
func acceptedConfig(p *generate.Proxy, rejected []draft.Rejection) *generate.Proxy {
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
