package status

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// effects says which policies have no effect in their meshes. It computes that on request, for a
// limited time, and never in the reconcile loop. Answers are cached until the mesh changes in a way
// that may change them; a new instance of a service does not.
type effects struct {
	mu     sync.Mutex // held while it computes
	meshes map[string]*meshEffects
}

// meshEffects holds the known effects of the policies of one mesh.
type meshEffects struct {
	of             *generate.Mesh
	shapes         generate.Shapes
	named, unnamed generate.Shape
	policies       map[resource.Key]*policyEffect
	work           *examination // not finished in the time of the last question; nil: none
}

// policyEffect is the known effect of one policy.
type policyEffect struct {
	shape    generate.Shape
	verdict  effect.MeshVerdict // of the dataplanes examined so far
	examined int                // number of them
	why      bool               // it is in force on none of them; the reasons are examined
	done     bool
}

const (
	// effectTime limits the time of one question about the effects of policies, and listTime that
	// of a question about all policies, which has other parts.
	effectTime = time.Second
	listTime   = effectTime / 2
	// maxWhy is the number of selected dataplanes whose reasons are examined.
	maxWhy = 32
	// effectStep is the number of dataplanes that are examined between two looks at the clock.
	effectStep = 64
)

type decodeFunc = func([]byte) (*resource.Resource, error)

// noLimit is the number of generated configs per question; the time limits them.
const noLimit = 1 << 30

// of returns the effects of some active policies of a mesh: nil for those that are not known when
// the time is up.
func (e *effects) of(ctx context.Context, decode decodeFunc, m *generate.Mesh, list []*resource.Resource,
	until time.Time) []*effect.MeshVerdict {
	out := make([]*effect.MeshVerdict, len(list))
	e.mu.Lock()
	defer e.mu.Unlock()
	over := func() bool { return ctx.Err() != nil || !time.Now().Before(until) }
	known := e.mesh(m)
	x := known.work
	if x == nil {
		x = newExamination(known, decode)
	}
	x.over, known.work = over, nil
	for i, r := range list {
		if p := x.policy(r); p != nil {
			v := p.verdict
			out[i] = &v
		} else {
			known.work = x
		}
	}
	return out
}

// drop forgets meshes that no longer exist.
func (e *effects) drop(meshes map[string]*generate.Mesh) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.meshes {
		if meshes[name] == nil {
			delete(e.meshes, name)
		}
	}
}

// mesh returns the cache of a mesh.
func (e *effects) mesh(m *generate.Mesh) *meshEffects {
	x := e.meshes[m.View.Name]
	if x == nil {
		x = &meshEffects{policies: map[resource.Key]*policyEffect{}}
		if e.meshes == nil {
			e.meshes = map[string]*meshEffects{}
		}
		e.meshes[m.View.Name] = x
	}
	if x.of != m {
		x.of, x.work = m, nil
		x.named, x.unnamed = x.shapes.Of(m)
		for k := range x.policies {
			if !slices.ContainsFunc(m.Policies.Policies(k.Kind), func(r *resource.Resource) bool { return r.Key == k }) {
				delete(x.policies, k)
			}
		}
	}
	return x
}

// examination is the work on questions. It is too large to keep after everything is known.
type examination struct {
	*meshEffects
	over     func() bool
	examiner *effect.Examiner // says whether policies are in force
	fields   *effect.Examiner // says why not
	names    []string         // of all dataplanes, those with outbounds first
}

func newExamination(known *meshEffects, decode decodeFunc) *examination {
	x := &examination{meshEffects: known}
	stop := func() bool { return x.over() }
	x.examiner = effect.New(known.of, effect.Options{Trials: noLimit, Stop: stop})
	x.fields = effect.New(known.of, effect.Options{Trials: noLimit, Stop: stop, Decode: decode})
	var others []string
	for _, d := range known.of.View.Dataplanes() {
		if calls(d) {
			x.names = append(x.names, d.Name)
		} else {
			others = append(others, d.Name)
		}
	}
	x.names = append(x.names, others...)
	return x
}

// calls reports whether a dataplane may have outbounds. Most policies are in force on those.
func calls(d *resource.Resource) bool {
	spec, ok := d.Spec.(*resource.Dataplane)
	return ok && (len(spec.Networking.Outbound) > 0 || spec.Networking.TransparentProxying != nil)
}

// policy returns the effect of an active policy, or nil if the time is up before it is known.
func (x *examination) policy(r *resource.Resource) *policyEffect {
	shape := x.unnamed
	if x.namesMatter(r) {
		shape = x.named
	}
	p := x.policies[r.Key]
	if p == nil || p.shape != shape {
		p = &policyEffect{shape: shape}
		x.policies[r.Key] = p
	}
	for !p.done {
		if x.over() {
			return nil
		}
		x.step(r, p)
	}
	return p
}

// namesMatter reports whether the effect of a policy may depend on the names of dataplanes.
func (x *examination) namesMatter(r *resource.Resource) bool {
	if spec, ok := r.Spec.(*resource.Policy); ok && spec.TargetRef != nil && spec.TargetRef.Kind == kindDataplane {
		return true
	}
	return effect.NamesMatter(x.of.Policies, r)
}

// step examines some more dataplanes: first whether the policy is in force on any of them, and
// then, if it is not, why on those that it selects.
func (x *examination) step(r *resource.Resource, p *policyEffect) {
	some := x.names[min(p.examined, len(x.names)):min(p.examined+effectStep, len(x.names))]
	with := x.examiner
	if p.why {
		some = slices.DeleteFunc(slices.Clone(some), func(name string) bool { return !x.selects(r, name) })
		with = x.fields
	}
	v := p.verdict
	if len(some) > 0 {
		v = v.Then(with.InMesh(r, some))
	}
	if v.Effect == api.EffectUnknown && x.over() {
		return // repeat this step
	}
	v.Changed = nil // may be long
	p.verdict = v
	p.examined += effectStep
	switch last := p.examined >= len(x.names); {
	case v.InForce():
		p.done = true
	case p.why:
		if p.done = last || !v.Lacking() || v.Selected >= maxWhy; v.Unexplained() && effect.Supersedes(x.of, r) {
			p.verdict.Effect, p.done = api.EffectUnknown, true
		}
	case last && v.Lacking() && x.atEgress(r):
		p.verdict.Effect, p.done = api.EffectUnknown, true
	case last && v.Lacking():
		p.why, p.examined, p.verdict = true, 0, effect.MeshVerdict{}
	case last:
		p.done = true
	}
}

// selects reports whether a policy selects a dataplane.
func (x *examination) selects(r *resource.Resource, dataplane string) bool {
	d := x.of.View.Dataplane(dataplane)
	return d != nil && Selects(x.of, r, d)
}

// atEgress reports whether a policy decides about destinations outside the mesh. It may be in force
// only on a zone egress, which is not examined.
func (x *examination) atEgress(r *resource.Resource) bool {
	return x.of.Without(r.Key).Policies.OutsideDigest() != x.of.Policies.OutsideDigest()
}
