package inspect

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// NewMesh derives a mesh from a set of resources. Parts of prev, which may be nil, may be used again.
type NewMesh func(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error)

// ProxyID names a proxy and the kind of client that takes its config.
type ProxyID struct {
	Mesh, Name string
	Flavor     node.Flavor
}

// Comparison is a change of the resources, and the proxies for which it is looked at.
type Comparison struct {
	Set    *resource.Set        // the present resources
	Put    []*resource.Resource // what would be created or changed; each key once
	Delete []resource.Key       // what would be deleted
	Shadow bool                 // afterwards shadow policies act like the others

	NewMesh NewMesh
	Made    map[string]*generate.Mesh // meshes that are made of Set already; nil: none

	Rendered generate.RenderCache // of resources that were shown before; nil: none

	Mesh      string    // only proxies of this mesh; "": all
	Dataplane string    // only the proxies of this name; "": all
	Connected []ProxyID // without Dataplane, only these; where none is in the mesh: every dataplane

	// MaxTold bounds the changes that are told of all proxies together; 200,000. MaxTried bounds the xDS resources that
	// are made to find causes; 60,000. The first proxy is always told, and its causes are always looked for. Zero takes the
	// values named here.
	MaxTold, MaxTried int
}

// Compare finds out what a change does to proxies. It touches nothing. The error is an [*Error] when the change is not
// possible or there is no such dataplane, and that of the context when it ends.
func Compare(ctx context.Context, c Comparison) (*Diff, error) {
	c.MaxTold, c.MaxTried = cmp.Or(c.MaxTold, 200_000), cmp.Or(c.MaxTried, 60_000)
	after, resources, e := c.after()
	if e != nil {
		return nil, e
	}
	d, err := newDiffer(&c, after)
	if err != nil {
		return nil, err
	}
	if c.Mesh != "" && c.Set.Get(meshKey(c.Mesh)) == nil && after.Get(meshKey(c.Mesh)) == nil {
		return nil, notFound("mesh %q does not exist", c.Mesh)
	}
	d.out.Resources = resources
	var proxies []ProxyID
	if d.out.Scope, proxies = c.proxies(after); len(proxies) == 0 && c.Dataplane != "" {
		if c.Mesh != "" {
			return nil, notFound("mesh %q has no dataplane %q", c.Mesh, c.Dataplane)
		}
		return nil, notFound("no mesh has a dataplane %q", c.Dataplane)
	}
	for _, id := range proxies {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := d.proxy(id); err != nil {
			return nil, err
		}
	}
	d.finish()
	return &d.out, nil
}

func meshKey(name string) resource.Key { return resource.Key{Kind: kindMesh, Name: name} }

// after returns the set after the change, and what becomes of each resource.
func (c *Comparison) after() (*resource.Set, []DiffResource, *Error) {
	out := []DiffResource{}
	tell := func(r *resource.Resource, action string) {
		out = append(out, DiffResource{Type: r.Kind, Mesh: r.Mesh, Name: r.Name, Action: action, Shadow: r.Shadow()})
	}
	gone, listed := map[resource.Key]bool{}, map[resource.Key]bool{}
	for _, k := range c.Delete {
		r := c.Set.Get(k)
		if r == nil {
			return nil, nil, notFound("%s does not exist, so it cannot be deleted", k)
		}
		if !gone[k] {
			tell(r, ActionDeleted)
		}
		gone[k], listed[k] = true, true
	}
	for _, r := range c.Put {
		if gone[r.Key] {
			return nil, nil, invalid(r.Key.String() + " is to be deleted, and stands in the documents too; do one of the two")
		}
		listed[r.Key] = true
		switch was := c.Set.Get(r.Key); {
		case was == nil:
			tell(r, ActionCreated)
		case was.Digest != r.Digest:
			tell(r, ActionChanged)
			out[len(out)-1].Fields = fieldChanges(was, r)
		case c.Shadow && r.Shadow():
			tell(r, ActionActivated)
		default:
			tell(r, ActionUnchanged)
		}
	}
	all := slices.Concat(slices.DeleteFunc(c.Set.All(), func(r *resource.Resource) bool { return gone[r.Key] }), c.Put)
	set := resource.NewSet(all) // of two with one key the later stays
	if e := c.checkMeshes(set); e != nil {
		return nil, nil, e
	}
	if c.Shadow {
		for _, r := range all {
			if r.Shadow() && !listed[r.Key] && (c.Mesh == "" || r.Mesh == c.Mesh) {
				tell(r, ActionActivated)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b DiffResource) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	return set, out, nil
}

// checkMeshes refuses what apply and delete would refuse: resources in a mesh that is not there.
func (c *Comparison) checkMeshes(set *resource.Set) *Error {
	for _, r := range c.Put {
		if r.Mesh != "" && set.Get(meshKey(r.Mesh)) == nil {
			return notFound("mesh %q does not exist; create it first, or with the same documents: it was named by %s", r.Mesh, r.Key)
		}
	}
	for _, k := range c.Delete {
		if k.Kind != kindMesh {
			continue
		}
		left := 0
		for _, r := range set.All() {
			if r.Mesh == k.Name {
				left++
			}
		}
		if left > 0 {
			return problem(http.StatusConflict, ProblemInUse, "Mesh in use", "mesh %q still has %d resources; delete them first", k.Name, left)
		}
	}
	return nil
}

// proxies lists what is compared, sorted.
func (c *Comparison) proxies(after *resource.Set) (scope string, out []ProxyID) {
	add := func(id ProxyID) {
		if (c.Mesh == "" || id.Mesh == c.Mesh) && (c.Dataplane == "" || id.Name == c.Dataplane) {
			out = append(out, id)
		}
	}
	for _, id := range c.Connected {
		add(id)
	}
	scope = ScopeConnected
	if c.Dataplane != "" || len(out) == 0 {
		for _, set := range [...]*resource.Set{c.Set, after} {
			for _, r := range set.Kind(kindDataplane) {
				add(ProxyID{Mesh: r.Mesh, Name: r.Name, Flavor: node.FlavorEnvoy})
			}
		}
		if scope = ScopeAll; c.Dataplane != "" {
			scope = ScopeNamed
		}
	}
	// Of a proxy that is connected and stored, the first says what kind of client it has.
	slices.SortStableFunc(out, func(a, b ProxyID) int {
		return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	out = slices.CompactFunc(out, func(a, b ProxyID) bool { return a.Mesh == b.Mesh && a.Name == b.Name })
	return scope, out
}

// differ compares proxies one after the other.
type differ struct {
	c         *Comparison
	after     *resource.Set
	states    map[string]*meshStates
	memo      *generate.Memo
	config    *configDiffer
	told      int  // operations in the answer
	work      int  // done to find causes
	attempted bool // causes of some proxy were looked for
	known     map[string][]Ref
	was, are  map[mesh.Warning]bool
	out       Diff
}

// meshStates is a mesh before and after the change; nil where it does not exist.
type meshStates struct {
	from, to   *generate.Mesh
	candidates []*candidate // what of the change concerns the mesh
}

func newDiffer(c *Comparison, after *resource.Set) (*differ, error) {
	r, err := generate.NewRenderer(c.Rendered)
	if err != nil {
		return nil, err
	}
	return &differ{
		c: c, after: after, states: map[string]*meshStates{}, memo: generate.NewMemo(),
		config: &configDiffer{renderer: r, pairs: map[pairKey]*pair{}, alike: map[alikeKey]*pair{}},
		known:  map[string][]Ref{},
		was:    map[mesh.Warning]bool{}, are: map[mesh.Warning]bool{},
		out: Diff{Resources: []DiffResource{}, Proxies: []ProxyDiff{}, Warnings: []Problem{}, Findings: []Finding{}},
	}, nil
}

// mesh returns both states of a mesh.
func (d *differ) mesh(name string) (*meshStates, error) {
	if s := d.states[name]; s != nil {
		return s, nil
	}
	s := &meshStates{}
	d.states[name] = s
	var err error
	if s.from = d.c.Made[name]; s.from == nil {
		if s.from, err = d.build(d.c.Set, name, nil); err != nil {
			return nil, err
		}
	}
	s.to = s.from
	var other bool
	if s.candidates, other = d.candidatesIn(name); other && (d.c.Shadow || len(s.candidates) > 0) {
		if s.to, err = d.build(d.after, name, s.from); err != nil {
			return nil, err
		}
	}
	if d.c.Shadow && s.to != nil {
		s.to = s.to.Shadow()
	}
	if s.to != s.from {
		d.warnings(d.was, s.from, s.candidates)
		d.warnings(d.are, s.to, s.candidates)
	}
	return s, nil
}

// build derives a mesh of a set, nil when the set does not have it.
func (d *differ) build(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
	if set.Get(meshKey(name)) == nil {
		return nil, nil
	}
	return d.c.NewMesh(set, name, prev)
}

// warnings notes what is to be said about a mesh.
func (d *differ) warnings(to map[mesh.Warning]bool, m *generate.Mesh, of []*candidate) {
	if m == nil {
		return
	}
	list := slices.Concat(m.View.Warnings, conflicts(m, of))
	if m.Policies != nil {
		list = append(list, m.Policies.Warnings...)
	}
	for _, w := range list {
		to[w] = true
	}
}

// maxWarnings bounds those that are told.
const maxWarnings = 1000

// finish adds what is to be said about all proxies together.
func (d *differ) finish() {
	for w := range maps.Keys(d.are) {
		if !d.was[w] {
			d.out.Warnings = append(d.out.Warnings, Problem{Resource: w.Resource.String(), Severity: SeverityWarning, Reason: w.Reason})
		}
	}
	slices.SortFunc(d.out.Warnings, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Reason, b.Reason))
	})
	d.out.Warnings = d.out.Warnings[:min(len(d.out.Warnings), maxWarnings)]
}
