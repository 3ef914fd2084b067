// Package change computes the effect of a change of the resources on proxies: how their configs and
// rules differ, which part of the change causes each difference ([api.Diff]), and which new
// problems the configs have and why ([Verified]). One pass over the proxies computes both, and
// generates each config once before and once after the change.
//
// The package is pure; callers may provide workers. It modifies nothing, and its work is bounded,
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

// Resource kinds that this package treats specially.
const (
	kindMesh      = "Mesh"
	kindDataplane = "Dataplane"
)

// NewMesh derives a mesh from a set of resources. It may reuse parts of prev, which may be nil.
type NewMesh func(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error)

// Try checks the config of a proxy with an Envoy. Its findings have [RuleOfEnvoy].
type Try func(context.Context, *generate.Proxy) ([]finding.Finding, error)

// Question is a change of the resources, and the proxies to examine.
type Question struct {
	Set    *resource.Set        // current resources; nil means none
	Put    []*resource.Resource // resources to create or change; no duplicate keys
	Delete []resource.Key       // resources to delete
	Shadow bool                 // activate shadow policies after the change

	NewMesh NewMesh
	Meshes  map[string]*generate.Mesh // meshes already derived from Set, or nil
	// InForce returns the current config of a proxy, or nil if it is unknown. It saves work, and the
	// change from that config is also checked. InForce may be nil.
	InForce func(generate.ProxyID) *generate.Proxy
	// Fit reports whether nothing of the active config is withheld, so that its Envoy has accepted all
	// of it. If Fit is nil, the active config is checked.
	Fit func(generate.ProxyID) bool

	Rendered generate.RenderCache // cache of rendered resources, or nil

	Mesh      string             // only proxies of this mesh; "" means all
	Dataplane string             // only proxies with this name; "" means all
	All       bool               // every dataplane of all nodes; Connected must be empty
	Connected []generate.ProxyID // if Dataplane is empty, only these; if none is in the mesh, every dataplane

	// Next, if not nil, is called with the config of each proxy after the change.
	Next func(generate.ProxyID, *Checked)

	Progress func(done, all int) // if not nil, called after each proxy
	// Each calls do for every number below n on the given number of workers, and returns when all
	// calls have returned, like Each of package workers. Workers call InForce and Rendered
	// concurrently. If Each is nil, everything runs on the caller's goroutine.
	Each    func(workers, n int, do func(worker, i int)) error
	Workers int
	// Frugal reduces memory use at the cost of time.
	Frugal bool
	// Crew holds caches between questions, or is nil.
	Crew *Crew
	// NoPatches omits the patches of the diff, which are most of the work of a large change.
	NoPatches bool

	// Limits; zero means the default. MaxTold limits the listed differences of all proxies (200,000),
	// MaxBytes the approximate size of their patches (128 MiB), and MaxTried the xDS resources that
	// are generated to find causes (60,000). The first proxy is always listed with causes. MaxTrials
	// limits the configs that are generated to find causes of findings (512), MaxFindings the listed
	// findings (200), and MaxWarnings the listed resources without effect (20).
	MaxTold, MaxBytes, MaxTried, MaxTrials, MaxFindings, MaxWarnings int

	// Decode decodes a resource from its canonical form. If it is nil, fields are not searched for
	// causes.
	Decode func([]byte) (*resource.Resource, error)
	// Try, if not nil, checks configs with an Envoy on this host. Its findings are listed with the
	// others, and its errors become notes.
	Try Try
}

// Checked is the config of a proxy after a change, with its findings.
type Checked struct {
	*generate.Proxy
	against  *draft.Sealed // the config that the proxy has accepted; nil if the rules were not applied
	findings []finding.Finding
}

// Check returns the findings of a config, given the config that its proxy has accepted. known is
// false if c does not have the result for these configs.
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

// Compare returns the effect of a change on proxies, and its new problems as [Verify] does. The
// error is an [*api.Error] if the change is not possible or there is no such dataplane, or the
// error of ctx. The check has a separate context.
func Compare(ctx, check context.Context, q Question) (*api.Diff, *Verified, error) {
	d, v := newDiffer(), newVerifier(check)
	if err := q.run(ctx, d, v); err != nil {
		return nil, nil, err
	}
	return &d.out, &v.out, nil
}

// Verify returns the new findings of a change and their causes. A finding is config that an Envoy
// would reject, could not use, or would use differently than specified. Verify does not list
// existing findings. If ctx ends, it returns the findings so far. It fails if a mesh cannot be
// derived.
func Verify(ctx context.Context, q Question) (*Verified, error) {
	v := newVerifier(ctx)
	if err := q.run(ctx, nil, v); err != nil {
		return nil, err
	}
	return &v.out, nil
}

func meshKey(name string) resource.Key { return resource.Key{Kind: kindMesh, Name: name} }

// apply returns the set after the change, the action for each resource, and the resources that
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
	return resource.NewSet(all), out, differ, nil // of two resources with one key the later stays
}

// checkMeshes rejects resources in a mesh that does not exist, as apply and delete do.
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
		left := slices.DeleteFunc(after.All(), func(r *resource.Resource) bool {
			return r.Mesh != k.Name || resource.Internal(r.Kind)
		})
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

// proxies returns the proxies to compare, sorted by mesh and name.
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
	// If a proxy is connected and stored, the connected one determines the kind of its client.
	return scope, distinctProxies(out)
}

// distinctProxies sorts proxies by mesh and name, and drops later duplicates.
func distinctProxies(list []generate.ProxyID) []generate.ProxyID {
	slices.SortStableFunc(list, func(a, b generate.ProxyID) int {
		return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(list, func(a, b generate.ProxyID) bool { return a.Mesh == b.Mesh && a.Name == b.Name })
}
