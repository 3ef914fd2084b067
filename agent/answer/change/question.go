// Package change computes what a change of the resources does to proxies: how their configs and
// rules differ afterwards and which part of the change causes what ([api.Diff]), and what is newly
// wrong with the configs and why ([Verified]). Both come from one pass over the proxies, in which
// the config of each is made once before and once after the change.
//
// The package is pure: who asks may lend it workers. It changes nothing, and its work is bounded;
// see [Question].
package change

import (
	"cmp"
	"context"
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kinds that this package knows by name.
const (
	kindMesh      = "Mesh"
	kindDataplane = "Dataplane"
)

// NewMesh derives a mesh from a set of resources. Parts of prev, which may be nil, may be reused.
type NewMesh func(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error)

// Try asks an Envoy about the config of a proxy. Its findings have [RuleOfEnvoy].
type Try func(context.Context, *generate.Proxy) ([]finding.Finding, error)

// Question is a change of the resources, and the proxies for which it is looked at.
type Question struct {
	Set    *resource.Set        // the present resources; nil: there are none
	Put    []*resource.Resource // what would be created or changed; each key once
	Delete []resource.Key       // what would be deleted
	Shadow bool                 // afterwards shadow policies act like the others

	NewMesh NewMesh
	Made    map[string]*generate.Mesh // meshes that are made of Set already; nil: none
	// InForce returns the config that a proxy has now, nil where none is known. It spares work, and
	// the steps from that config to the new one are checked too. Nil: none is known.
	InForce func(generate.ProxyID) *generate.Proxy
	// Fit reports whether a check has found nothing in the config that is in force, so that its Envoy
	// has taken all of it. Nil: that is found out.
	Fit func(generate.ProxyID) bool

	Rendered generate.RenderCache // of resources that were rendered before; nil: none

	Mesh      string             // only proxies of this mesh; "": all
	Dataplane string             // only the proxies of this name; "": all
	All       bool               // proxies of all nodes: every dataplane, with Connected left empty
	Connected []generate.ProxyID // without Dataplane, only these; where none is in the mesh: every dataplane

	// Next is called with the config of each proxy after the change; nil: it is not.
	Next func(generate.ProxyID, *Checked)

	Progress func(done, all int) // is called after each proxy; nil: nothing is
	// Each calls do for every number below n, on so many workers, and returns when all calls have:
	// Each of package workers. InForce and Rendered are used by all of them at once. Nil: the caller's
	// goroutine does everything.
	Each    func(workers, n int, do func(worker, i int)) error
	Workers int
	// Frugal holds as little as possible at a time, where memory is short.
	Frugal bool
	// Crew remembers work from one question to the next; nil: nothing is.
	Crew *Crew
	// NoPatches leaves the patches of the diff empty, which are most of the work where much changes.
	NoPatches bool

	// MaxTold bounds the differences that are listed for all proxies together; 200,000. MaxBytes
	// bounds their patches, about; 128 MiB. MaxTried bounds the xDS resources that are made to find
	// their causes; 60,000. The first proxy is always listed, with causes. MaxTrials bounds the
	// configs that are made to find causes of findings; 512. MaxFindings those that are listed; 200.
	// MaxWarnings what is told of resources without effect; 20. Zero takes the values named here.
	MaxTold, MaxBytes, MaxTried, MaxTrials, MaxFindings, MaxWarnings int

	// Decode reads a resource of its canonical form; nil: no fields are searched for as causes of
	// findings.
	Decode func([]byte) (*resource.Resource, error)
	// Try asks an Envoy of this host about a config. What it finds is listed with the rest, its errors
	// are notes. Nil: no Envoy is asked.
	Try Try
}

// Checked is the config of a proxy after a change, with what the rules find in it.
type Checked struct {
	*generate.Proxy
	against  *draft.Sealed // that the proxy has accepted; nil: the rules were not asked
	findings []finding.Finding
}

// Check returns what the rules find in a config, given what its proxy has accepted, where that is
// known of the same config.
func (c *Checked) Check(p *generate.Proxy, accepted *draft.Sealed) (_ []finding.Finding, known bool) {
	if c == nil || c.against == nil || c.Sealed != p.Sealed || c.Build != p.Build ||
		c.Host != p.Host && (c.Host.Matters() || p.Host.Matters()) {
		return nil, false
	}
	for rank, list := range accepted.Resources {
		if !slices.Equal(list, c.against.Resources[rank]) {
			return nil, false
		}
	}
	return c.findings, true
}

// Compare returns what a change does to proxies, and as [Verify] what is wrong with that. The error
// is an [*api.Error] when the change is not possible or there is no such dataplane, and that of ctx
// when it ends. The check ends with a context of its own.
func Compare(ctx, check context.Context, q Question) (*api.Diff, *Verified, error) {
	d, v := newDiffer(), newVerifier(check)
	if err := q.run(ctx, d, v); err != nil {
		return nil, nil, err
	}
	return &d.out, &v.out, nil
}

// Verify returns what a change makes that the Envoys of some proxies would refuse, could not use,
// or would use otherwise than it reads, and what of the change is the cause. What exists before the
// change already is not listed. When ctx ends, what was found until then is the answer. The error
// is that of a mesh that cannot be derived.
func Verify(ctx context.Context, q Question) (*Verified, error) {
	v := newVerifier(ctx)
	if err := q.run(ctx, nil, v); err != nil {
		return nil, err
	}
	return &v.out, nil
}

func meshKey(name string) resource.Key { return resource.Key{Kind: kindMesh, Name: name} }

// apply returns the set after the change, what becomes of each resource, and which resources
// differ, in the order of the question.
func (q *Question) apply() (*resource.Set, []api.DiffResource, []resource.Key, *api.Error) {
	out, differ := []api.DiffResource{}, []resource.Key{}
	tell := func(r *resource.Resource, action string) *api.DiffResource {
		out = append(out, api.DiffResource{Type: r.Kind, Mesh: r.Mesh, Name: r.Name, Action: action, Shadow: r.Shadow()})
		if action != api.ActionUnchanged && action != api.ActionActivated {
			differ = append(differ, r.Key)
		}
		return &out[len(out)-1]
	}
	gone, listed := map[resource.Key]bool{}, map[resource.Key]bool{}
	for _, k := range q.Delete {
		r := q.Set.Get(k)
		if r == nil {
			return nil, nil, nil, api.NewNotFound("%s does not exist, so it cannot be deleted", k)
		}
		if !gone[k] {
			tell(r, api.ActionDeleted)
		}
		gone[k], listed[k] = true, true
	}
	for _, r := range q.Put {
		if gone[r.Key] {
			return nil, nil, nil, api.NewInvalid(r.Key.String() +
				" is to be deleted and is in the documents too; choose one")
		}
		listed[r.Key] = true
		switch was := q.Set.Get(r.Key); {
		case was == nil:
			tell(r, api.ActionCreated)
		case was.Digest != r.Digest:
			tell(r, api.ActionChanged).Fields = Fields(was, r)
		case q.Shadow && r.Shadow():
			tell(r, api.ActionActivated)
		default:
			tell(r, api.ActionUnchanged)
		}
	}
	all := slices.Concat(slices.DeleteFunc(q.Set.All(), func(r *resource.Resource) bool { return gone[r.Key] }), q.Put)
	for _, r := range all {
		if q.Shadow && r.Shadow() && !listed[r.Key] && (q.Mesh == "" || r.Mesh == q.Mesh) {
			tell(r, api.ActionActivated)
		}
	}
	slices.SortStableFunc(out, func(a, b api.DiffResource) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	return resource.NewSet(all), out, differ, nil // of two with one key the later stays
}

// checkMeshes refuses what apply and delete would refuse: resources in a mesh that does not exist.
func (q *Question) checkMeshes(after *resource.Set) *api.Error {
	for _, r := range q.Put {
		if r.Mesh != "" && after.Get(meshKey(r.Mesh)) == nil {
			return api.NewNotFound("mesh %q does not exist; create it first, or with the same documents: it was named by %s",
				r.Mesh, r.Key)
		}
	}
	for _, k := range q.Delete {
		if k.Kind != kindMesh {
			continue
		}
		left := slices.DeleteFunc(after.All(), func(r *resource.Resource) bool { return r.Mesh != k.Name })
		if len(left) > 0 {
			return api.NewError(api.StatusConflict, api.ProblemInUse, "Mesh in use",
				"mesh %q still has %s", k.Name,
				plural.Form(len(left), "1 resource; delete it first", "%d resources; delete them first"))
		}
	}
	if q.Mesh != "" && q.Set.Get(meshKey(q.Mesh)) == nil && after.Get(meshKey(q.Mesh)) == nil {
		return api.NewNotFound("mesh %q does not exist", q.Mesh)
	}
	return nil
}

// proxies returns those that are compared, sorted by mesh and name.
func (q *Question) proxies(after *resource.Set) (scope string, out []generate.ProxyID) {
	add := func(id generate.ProxyID) {
		if (q.Mesh == "" || id.Mesh == q.Mesh) && (q.Dataplane == "" || id.Name == q.Dataplane) {
			out = append(out, id)
		}
	}
	for _, id := range q.Connected {
		add(id)
	}
	scope = api.ScopeConnected
	if q.Dataplane != "" || len(out) == 0 {
		for _, set := range [...]*resource.Set{q.Set, after} {
			for _, r := range set.Kind(kindDataplane) {
				add(generate.ProxyID{Mesh: r.Mesh, Name: r.Name, Flavor: node.FlavorEnvoy})
			}
		}
		if scope = api.ScopeAll; q.Dataplane != "" {
			scope = api.ScopeNamed
		}
	}
	// Of a proxy that is connected and stored, the first says what kind of client it has.
	return scope, distinctProxies(out)
}

// distinctProxies sorts proxies by mesh and name; of those with the same the first stays.
func distinctProxies(list []generate.ProxyID) []generate.ProxyID {
	slices.SortStableFunc(list, func(a, b generate.ProxyID) int {
		return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(list, func(a, b generate.ProxyID) bool { return a.Mesh == b.Mesh && a.Name == b.Name })
}
