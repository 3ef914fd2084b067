package reconcile

import (
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Pass updates the proxies once. It must not run concurrently with Run or another Pass.
func (r *Reconciler) Pass() { r.pass(func() bool { return false }) }

// pass runs one pass. After each slice it calls cut, and stops if that returns true. It reports
// whether it served all proxies.
func (r *Reconciler) pass(cut func() bool) (whole bool) {
	began := r.o.Now()
	r.busy.Store(began.UnixNano())
	defer r.busy.Store(0)

	r.passes++
	if r.shedding.Swap(false) {
		r.shed()
	}
	p := &pass{r: r, now: began, lastStream: r.o.Publisher.LastStream(), publish: map[node.Key]rollout.Config{},
		transitions: map[string]*mesh.Transition{}}
	if r.o.Awaited != nil {
		p.awaited = r.o.Awaited()
	}
	snap := r.o.Store.Snapshot() // after Awaited, so that it contains what streams have stored
	p.revision, p.set, p.snap = snap.Revision(), snap.Set(), snap
	due := p.derive()
	p.beginCertificates(p.meshes)
	p.offered = r.offered.Load()
	p.line()
	whole = p.serve(cut, max(r.o.Slice, r.o.Now().Sub(began)))
	p.endCertificates(p.meshes)
	if whole {
		p.endSteps()
		p.forgetVariants()
		if p.offered != nil && p.revision > p.offered.revision {
			r.offered.CompareAndSwap(p.offered, nil)
		}
	}
	p.collect()
	for _, at := range []time.Time{due, p.switchAt, p.leaveAt} {
		if !at.IsZero() && (r.renewAt.IsZero() || at.Before(r.renewAt)) {
			r.renewAt = at
		}
	}
	r.memo.DropMatches()
	ended := r.o.Now()
	p.flush(p.problems, ended)
	if whole {
		p.endSwitching()
	}
	r.passSeconds.Observe(ended.Sub(began).Seconds())
	r.logNew(p.problems)
	if r.o.Passed != nil {
		r.o.Passed()
	}
	return whole
}

// pass is the state of one pass.
type pass struct {
	r           *Reconciler
	now         time.Time
	lastStream  uint64          // see rollout.Config
	awaited     map[string]bool // see Options.Awaited
	revision    uint64          // of the store
	set         *resource.Set
	snap        *store.Snapshot // of the set
	meshes      map[string]*generate.Mesh
	failed      map[string]string           // by mesh that keeps its last state: why
	problems    []api.Problem               // of meshes and, at the end, also of proxies
	switchAt    time.Time                   // next step of switching TLS; zero: none
	leaveAt     time.Time                   // next time to forget a proxy; zero: none
	switching   map[resource.Key]string     // see [status.Result]
	transitions map[string]*mesh.Transition // by mesh
	switched    []resource.Key              // of switching, in their last step

	connected       []node.Key
	behind, waiting []node.Key // proxies still to be served; see line
	publish         map[node.Key]rollout.Config
	rechecked       bool
	offered         *offer // nil: none

	found *change.Found // findings of the check on connected proxies; nil before collect
}

// offer holds the configs computed by the pre-write check of a change.
type offer struct {
	revision uint64 // store revision before the change
	proxies  map[generate.ProxyID]*change.Checked
}

// Offer passes configs and findings from the pre-write check of a change to the following passes.
// The change is about to be stored. The first complete pass afterwards drops them. The caller must
// not modify the map.
func (r *Reconciler) Offer(proxies map[generate.ProxyID]*change.Checked) {
	r.offered.Store(&offer{r.o.Store.Snapshot().Revision(), proxies})
}

// of returns the offered config of a client, or nil.
func (o *offer) of(mesh, name string, flavor node.Flavor) *change.Checked {
	if o == nil {
		return nil
	}
	return o.proxies[generate.ProxyID{Mesh: mesh, Name: name, Flavor: flavor}]
}

func (p *pass) problem(k resource.Key, severity, reason string) {
	p.problems = append(p.problems, api.Problem{Resource: k.String(), Severity: severity, Reason: reason})
}

func (s *proxyState) problem(k resource.Key, severity, reason string) {
	s.problems = append(s.problems, api.Problem{Resource: k.String(), Severity: severity, Reason: reason})
}

// derive derives the meshes of the snapshot. It returns when virtual addresses expire next, or
// zero.
func (p *pass) derive() (due time.Time) {
	for _, m := range p.set.Kind("Mesh") {
		p.transitions[m.Name] = p.transition(m)
	}
	problems, stored := len(p.problems), false
	if fixed := p.r.vips.storing(); !fixed {
		p.meshes = p.buildMeshes(p.set, false)
		due, stored = p.r.vips.save(p.meshes, p.kept, p.r.Trigger)
	}
	if !stored { // the disk is slow: continue without the new addresses until they are stored
		p.problems = p.problems[:problems]
		p.meshes = p.buildMeshes(p.set, true)
	}
	p.r.meshes = p.meshes
	return due
}

// buildMeshes derives every mesh. If that fails, a mesh keeps its last state. If it has none, as
// after a start, its proxies keep their config.
func (p *pass) buildMeshes(set *resource.Set, fixed bool) map[string]*generate.Mesh {
	out := map[string]*generate.Mesh{}
	p.failed = map[string]string{}
	derivedAt := map[string]uint64{}
	for _, m := range p.meshKeys() {
		prev := p.r.meshes[m.Name]
		next, err := guard(p.r.o.Log, "mesh "+m.Name, func() (*generate.Mesh, error) {
			if d, held := p.snap.Holder(m.Name); held {
				return nil, &heldError{d}
			}
			return p.newMesh(set, m.Name, prev, fixed)
		})
		derivedAt[m.Name] = p.revision
		if err == nil && next.View.Unaddressed { // it lacks addresses
			derivedAt[m.Name] = p.r.derivedAt[m.Name]
		}
		if err != nil {
			p.problem(m, api.SeverityError, err.Error())
			p.failed[m.Name] = err.Error()
			if next = prev; next == nil {
				continue
			}
			derivedAt[m.Name] = p.r.derivedAt[m.Name]
		}
		for _, w := range slices.Concat(next.View.Warnings, next.Policies.Warnings) {
			p.problem(w.Resource, api.SeverityWarning, w.Reason)
		}
		out[m.Name] = next
	}
	p.r.derivedAt = derivedAt
	maps.DeleteFunc(p.r.switching, func(name string, _ *switching) bool { return out[name] == nil })
	maps.DeleteFunc(p.r.tls, func(name string, _ *tlsSteps) bool { return out[name] == nil })
	return out
}

// collect adds the problems of the connected proxies.
func (p *pass) collect() {
	p.found = &change.Found{}
	for _, key := range p.connected {
		s := p.r.proxies[key]
		if s == nil {
			continue
		}
		p.problems = append(p.problems, s.problems...)
		if ref, err := node.ParseRef(key.ID); err == nil {
			for i := range s.verdict.warnings {
				p.found.Add(ref.Key(), &s.verdict.warnings[i])
			}
		}
	}
	p.problems = append(p.problems, p.found.Problems(maxWarnings)...)
	p.reportRefused()
	if p.r.o.Problems != nil {
		p.problems = append(p.problems, p.r.o.Problems()...)
	}
	slices.SortFunc(p.problems, compareProblems)
	p.problems = slices.Compact(p.problems)
}

// flush replaces the result, and publishes the configs since the last flush.
func (p *pass) flush(problems []api.Problem, at time.Time) {
	r, found := p.r, p.found
	if last := r.last.Load(); found == nil && last != nil {
		found = last.Found
	}
	r.last.Store(&status.Result{Revision: p.revision, Meshes: p.meshes, At: at, Duration: at.Sub(p.now),
		Problems: problems,
		Found:    found, Proxies: r.configs(), Published: p.published(),
		Zone: r.zone(), SystemCA: r.o.SystemCA, Switching: p.switching, Behind: len(p.behind) + len(p.waiting),
		Stale: p.stale(), LeftOut: p.leftOut(), Kept: p.keptMeshes()})
	if !p.rechecked { // once per pass, because it reads the result
		p.rechecked = true
		r.o.Recheck()
	}
	r.o.Publisher.Publish(p.publish)
	p.publish = map[node.Key]rollout.Config{}
}

// Stored returns the latest revision of the resources of a proxy, or 0 if it does not exist.
func Stored(s *store.Snapshot, ref node.Ref) uint64 {
	rec, ok := s.Get(ref.Key())
	if !ok {
		return 0
	}
	if ref.Type != node.ProxyDataplane {
		return rec.Revision
	}
	m, ok := s.Get(resource.Key{Kind: "Mesh", Name: ref.Mesh})
	if !ok {
		return 0
	}
	return max(rec.Revision, m.Revision)
}
