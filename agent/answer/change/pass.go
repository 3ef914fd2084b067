package change

import (
	"cmp"
	"context"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// batch is the number of proxies per worker between two collections of results, which are made in
// the order of the proxies. Their configs are held until then.
const batch = 8

// run checks the proxies, and compares them if d is not nil.
func (q *Question) run(ctx context.Context, d *differ, v *verifier) error {
	if q.Set == nil {
		q.Set = resource.NewSet(nil)
	}
	q.MaxTold, q.MaxBytes, q.MaxTried = cmp.Or(q.MaxTold, 200_000), cmp.Or(q.MaxBytes, 128<<20), cmp.Or(q.MaxTried, 60_000)
	q.MaxTrials, q.MaxFindings = cmp.Or(q.MaxTrials, 512), cmp.Or(q.MaxFindings, 200)
	q.MaxWarnings = cmp.Or(q.MaxWarnings, maxNotes)
	after, resources, differ, e := q.apply()
	if e != nil {
		return e
	}
	s := &states{Question: q, after: after, resources: resources, meshes: map[string]*meshStates{},
		warnings: map[*generate.Mesh][]mesh.Warning{}}
	if err := s.hire(d != nil); err != nil {
		return err
	}
	defer func() {
		for _, w := range s.crew {
			w.memo.Rest()
			w.config, w.rules = nil, ruleCache{}
		}
	}()
	scope, compared := q.proxies(after)
	proxies := v.begin(s, differ, slices.Clone(compared))
	if d != nil {
		if err := d.begin(s, scope, len(compared)); err != nil {
			return err
		}
	}
	for done := 0; done < len(proxies) && ctx.Err() == nil; {
		size := batch * len(s.crew)
		if s.Frugal {
			size = 1
		}
		chunk := make([]*proxyStates, 0, size)
		for _, id := range proxies[done:min(done+cap(chunk), len(proxies))] {
			m, err := s.mesh(id.Mesh)
			if err != nil {
				return err
			}
			x := s.of(id, m)
			// Compared proxies are also checked; both lists are sorted.
			if len(compared) > 0 && compared[0] == id {
				x.compared = d != nil
				compared = compared[1:]
			}
			chunk = append(chunk, x)
		}
		err := s.each(len(chunk), func(w *worker, i int) {
			if ctx.Err() == nil {
				chunk[i].look(w, d, v)
			}
		})
		if err != nil {
			return err
		}
		for i, x := range chunk {
			if ctx.Err() != nil {
				break
			}
			v.take(x)
			if q.Next != nil && x.to != nil && x.failed == nil {
				q.Next(x.ProxyID, &Checked{x.to, x.against, x.ruled})
			}
			if err := d.take(x); err != nil {
				return err
			}
			chunk[i] = nil
			if s.Frugal {
				s.crew[0].checker.Forget()
				s.crew[0].earlier.Forget()
			}
			if done++; q.Progress != nil {
				q.Progress(done, len(proxies))
			}
		}
	}
	if err := ctx.Err(); err != nil && d != nil {
		return err
	}
	if err := v.finish(); err != nil {
		return err
	}
	if d != nil {
		d.finish()
	}
	return nil
}

// worker holds the caches of one worker, which processes one proxy at a time. They save work and
// never change a result.
type worker struct {
	memo    *generate.Memo
	checker check.Checker // of configs after the change
	earlier check.Checker // of configs before it; a shared checker would drop findings between the two
	config  *configDiffer
	rules   ruleCache
	whole   map[wholeKey]bool // configs that Envoy accepts completely
}

// Crew holds workers with their caches, so that the next change of the same proxies takes less
// work. It holds results of checks, but no configs. It serves one question at a time.
type Crew struct{ workers []*worker }

// maxWhole is the maximum number of configs that a worker records as accepted completely.
const maxWhole = 4096

// hire creates workers or uses those of the crew.
func (s *states) hire(differ bool) error {
	n := max(1, s.Workers)
	if s.Each == nil || s.Try != nil || s.Frugal { // an Envoy checks only the first configs, in order
		n = 1
	}
	crew := cmp.Or(s.Crew, &Crew{})
	for len(crew.workers) < n {
		crew.workers = append(crew.workers, &worker{memo: generate.NewMemo(), whole: map[wholeKey]bool{}})
	}
	s.crew = crew.workers[:n]
	for i := range s.crew {
		s.crew[i].config, s.crew[i].rules = nil, newRuleCache()
		if differ {
			r, err := generate.NewRenderer(s.Rendered)
			if err != nil {
				return err
			}
			s.crew[i].config = &configDiffer{renderer: r, pairs: map[pairKey]*pair{}, shared: map[sharedKey]*pair{}}
		}
	}
	return nil
}

// each calls do for every number below n on the workers, and waits for all of them.
func (s *states) each(n int, do func(w *worker, i int)) error {
	if s.Each == nil {
		for i := range n {
			do(s.crew[0], i)
		}
		return nil
	}
	return s.Each(len(s.crew), n, func(worker, i int) { do(s.crew[worker], i) })
}

// states derives the states before and after the change.
type states struct {
	*Question
	after     *resource.Set
	resources []api.DiffResource
	meshes    map[string]*meshStates
	warnings  map[*generate.Mesh][]mesh.Warning // of the states of meshes
	crew      []*worker                         // at least one
	derived   int                               // services of the meshes derived to find causes
}

// meshStates is a mesh before and after the change, or nil if it does not exist or the change
// cannot affect it.
type meshStates struct {
	from, to   *generate.Mesh
	candidates []*candidate // the resources of the change that affect the mesh
	policies   map[string]bool
	compared   bool // a diff includes one of its proxies
	checked    bool // a check has collected its warnings
}

// mesh returns both states of a mesh. It derives neither if the change cannot affect the mesh.
func (s *states) mesh(name string) (*meshStates, error) {
	if m := s.meshes[name]; m != nil {
		return m, nil
	}
	m := &meshStates{policies: map[string]bool{}}
	var other bool
	m.candidates, other = s.candidatesIn(name)
	other = other && (s.Shadow || len(m.candidates) > 0)
	if !other && !s.Shadow {
		s.meshes[name] = m
		return m, nil
	}
	var err error
	if m.from = s.Meshes[name]; m.from == nil {
		if m.from, err = s.build(s.Set, name, nil); err != nil {
			return nil, err
		}
	}
	m.to = m.from
	if other {
		if m.to, err = s.build(s.after, name, m.from); err != nil {
			return nil, err
		}
	}
	if s.Shadow && m.to != nil {
		m.to = m.to.Shadow()
	}
	for _, x := range [...]*generate.Mesh{m.from, m.to} {
		if x == nil || x.Policies == nil {
			continue
		}
		for _, plugin := range x.Policies.Plugins {
			for _, d := range plugin.Kinds {
				m.policies[d.Kind] = true
			}
			for _, l := range plugin.Legacy {
				m.policies[l.Kind] = true
			}
		}
	}
	s.meshes[name] = m
	return m, nil
}

// build derives a mesh of a set, or returns nil if the set does not have it.
func (s *states) build(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
	if set.Get(meshKey(name)) == nil {
		return nil, nil
	}
	return s.NewMesh(set, name, prev)
}

// proxyStates is one proxy before and after the change.
type proxyStates struct {
	generate.ProxyID
	*states
	mesh                 *meshStates
	now                  *generate.Proxy // active config, or nil if unknown
	generated            bool            // from was generated
	from, to             *generate.Proxy // nil if it does not exist
	failedBefore, failed error
	against              *draft.Sealed     // the config that the rules compared to; nil if they were not applied
	ruled                []finding.Finding // findings about to

	compared bool // for a diff
	verified *verifiedProxy
	diff     *proxyDiffer // nil if there is nothing to compare
	err      error        // of the comparison
}

func (s *states) of(id generate.ProxyID, m *meshStates) *proxyStates {
	x := &proxyStates{ProxyID: id, states: s, mesh: m}
	if s.InForce != nil {
		x.now = s.InForce(id)
	}
	return x
}

// makeFrom generates the config before the change once.
func (x *proxyStates) makeFrom(w *worker) {
	if !x.generated {
		x.generated = true
		x.from, x.failedBefore = x.In(x.mesh.from, x.now, w.memo)
	}
}

// worse returns why the config cannot be generated after the change, unless it failed in the same
// way before.
func (x *proxyStates) worse(w *worker) error {
	if x.failed == nil {
		return nil
	}
	if x.makeFrom(w); x.failedBefore != nil && x.failedBefore.Error() == x.failed.Error() {
		return nil
	}
	return x.failed
}

// look generates both configs of a proxy as needed and passes them to d and v. It modifies only the
// proxy.
func (x *proxyStates) look(w *worker, d *differ, v *verifier) {
	compare, check := x.compared && x.mesh.from != x.mesh.to, v.wants(w, x)
	if compare {
		x.makeFrom(w)
	}
	if compare || check {
		x.to, x.failed = x.In(x.mesh.to, cmp.Or(x.from, x.now), w.memo)
	}
	if check {
		v.look(w, x)
	}
	if compare {
		d.look(w, x)
	}
}

// same reports whether the configs of a proxy can differ only in endpoints.
func (m *meshStates) same(w *worker, name string) bool {
	if m.from == m.to {
		return true
	}
	if m.from == nil || m.to == nil || m.from.Policies == nil || m.to.Policies == nil ||
		m.from.View.Catalog != m.to.View.Catalog {
		return false
	}
	p, q := m.from.View.Dataplane(name), m.to.View.Dataplane(name)
	return p != nil && q != nil && p.Digest == q.Digest &&
		w.memo.Match(m.from.Policies, p).Fingerprint == w.memo.Match(m.to.Policies, q).Fingerprint
}

// ownNames returns names that belong to only one proxy, longest first: its advertised tags, its
// services, and its addresses.
func ownNames(m *generate.Mesh, name string) []string {
	if m == nil || m.View.Dataplane(name) == nil {
		return nil
	}
	dp, ok := m.View.Dataplane(name).Spec.(*resource.Dataplane)
	if !ok {
		return nil
	}
	own := []string{mesh.TagString(m.View.ProxyTags(dp)), dp.Networking.Address}
	for i := range dp.Networking.Inbound {
		in := &dp.Networking.Inbound[i]
		own = append(own, in.Address, in.Tags[resource.TagService])
	}
	slices.SortFunc(own, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.DeleteFunc(slices.Compact(own), func(s string) bool { return s == "" })
}
