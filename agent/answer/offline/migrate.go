package offline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// MigrateOptions selects what to migrate.
type MigrateOptions struct {
	Zone       string   // "" means mesh.DefaultZone
	Mesh       string   // required
	Kinds      []string // source-destination (legacy) kinds, as in the type field; empty: all
	Dataplanes []string // dataplanes whose configs are compared; empty: all of the mesh
}

// Migration contains the successors of a mesh's legacy policies and the changes that they cause.
type Migration struct {
	Mesh     string           `json:"mesh"`
	Policies []MigratedPolicy `json:"policies"`
	// Without lists the legacy policies without a successor.
	Without    []MigrationSource `json:"without"`
	Dataplanes []MigratedProxy   `json:"dataplanes"`
	Warnings   []string          `json:"warnings"` // new warnings that the new policies cause
}

// MigratedPolicy is a new policy.
type MigratedPolicy struct {
	Type string `json:"type"`
	Name string `json:"name"`
	// Stored is true if a shadow policy with this type and name exists; applying the new policy
	// replaces it.
	Stored   bool            `json:"stored,omitempty"`
	From     []string        `json:"from"` // the legacy policies as Kind/mesh/name
	Notes    []string        `json:"notes"`
	Resource json.RawMessage `json:"resource"` // in universal format, labeled kuma.io/effect: shadow
}

// MigrationSource is a legacy policy without a successor and the reason.
type MigrationSource struct {
	Policy string `json:"policy"` // Kind/mesh/name
	Why    string `json:"why"`
}

// MigratedProxy contains the changes in the config of one proxy.
type MigratedProxy struct {
	Name string `json:"name"`
	// Live contains the changes after the new policies lose their shadow label, and Deleted the
	// changes after the legacy policies are then deleted. Both are RFC 6902 patches of the xds
	// document of _config.
	Live    []MigrationChange `json:"live"`
	Deleted []MigrationChange `json:"deleted"`
}

// MigrationChange is one operation of a patch with its reasons.
type MigrationChange struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
	// Type is the type URL of the resource, Name its name, and Field the changed field in the
	// notation of [api.FieldDiff].
	Type  string `json:"type"`
	Name  string `json:"name"`
	Field string `json:"field"`
	// Before is the previous value; absent if there was none.
	Before json.RawMessage `json:"before,omitempty"`
	// Why is empty if no plugin has a reason for the change; the user should review it.
	Why []string `json:"why"`
	// Same is true if the change does not affect Envoy's behavior.
	Same bool `json:"same"`
}

// Migrate derives new policies from the legacy policies of a mesh and shows their effect. Existing
// shadow policies are ignored.
func (o *Offline) Migrate(opts MigrateOptions) (*Migration, error) {
	g := migration{opts: opts, out: &Migration{
		Mesh: opts.Mesh, Policies: []MigratedPolicy{}, Without: []MigrationSource{}, Dataplanes: []MigratedProxy{},
		Warnings: []string{},
	}}
	var acting []*resource.Resource
	for _, r := range o.list {
		if !r.Shadow() {
			acting = append(acting, r)
		}
	}
	now, err := g.mesh(acting, policy.Options{})
	if err != nil {
		return nil, err
	}
	added, gone, err := g.policies(now, o.set)
	if err != nil {
		return nil, err
	}
	g.hosts(o.set)
	live, err := g.mesh(slices.Concat(acting, added), policy.Options{Shadow: true})
	if err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(slices.Clone(acting), func(r *resource.Resource) bool { return gone[r.Key] })
	deleted, err := g.mesh(slices.Concat(left, added), policy.Options{Shadow: true})
	if err != nil {
		return nil, err
	}
	if len(added)+len(gone) == 0 {
		return g.out, nil
	}
	return g.out, g.compare(now, live, deleted)
}

// migration holds the state of [Offline.Migrate].
type migration struct {
	opts    MigrateOptions
	out     *Migration
	changes []policy.Change
}

func (g *migration) mesh(list []*resource.Resource, p policy.Options) (*generate.Mesh, error) {
	return generate.NewMesh(resource.NewSet(list), g.opts.Mesh, mesh.Options{Zone: g.opts.Zone}, kinds.Plugins(), p, nil)
}

// policies derives the new policies. gone contains the legacy policies that they replace or that
// have no effect.
func (g *migration) policies(now *generate.Mesh,
	stored *resource.Set) (added []*resource.Resource, gone map[resource.Key]bool, err error) {
	gone = map[resource.Key]bool{}
	reg := kinds.Registry()
	named := map[resource.Key]bool{}
	taken := func(kind, name string) bool {
		k := resource.Key{Kind: kind, Mesh: g.opts.Mesh, Name: name}
		r := stored.Get(k)
		return named[k] || r != nil && !r.Shadow()
	}
	for _, plugin := range now.Policies.Plugins {
		for _, l := range plugin.Legacy {
			list := now.Policies.Policies(l.Kind)
			if l.Migrate == nil || len(list) == 0 || len(g.opts.Kinds) > 0 && !slices.Contains(g.opts.Kinds, l.Kind) {
				continue
			}
			m := l.Migrate(&policy.MigrateInput{Index: now.Policies, Policies: list, NameExists: taken})
			slices.SortStableFunc(m.Policies, func(a, b policy.Migrated) int {
				return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
			})
			g.changes = append(g.changes, m.Changes...)
			for _, w := range m.Without {
				gone[w.Policy] = true
				g.out.Without = append(g.out.Without, MigrationSource{w.Policy.String(), w.Why})
			}
			for i := range m.Policies {
				r, doc, err := g.shadow(reg, &m.Policies[i])
				if err != nil {
					return nil, nil, err
				}
				named[r.Key] = true
				added = append(added, r)
				p := MigratedPolicy{Type: r.Kind, Name: r.Name, Stored: stored.Get(r.Key) != nil, From: []string{},
					Notes: append([]string{}, m.Policies[i].Notes...), Resource: doc}
				for _, k := range m.Policies[i].From {
					gone[k] = true
					p.From = append(p.From, k.String())
				}
				g.out.Policies = append(g.out.Policies, p)
			}
		}
	}
	return added, gone, nil
}

// shadow returns the resource of a new policy. It decodes the document of the policy, so the
// resource equals the one that applying the document would create.
func (g *migration) shadow(reg *resource.Registry, p *policy.Migrated) (*resource.Resource, []byte, error) {
	doc, err := resource.Marshal(&resource.Resource{
		Key:    resource.Key{Kind: p.Kind, Mesh: g.opts.Mesh, Name: p.Name},
		Labels: map[string]string{resource.LabelEffect: resource.EffectShadow},
		Spec:   p.Spec,
	})
	if err != nil {
		return nil, nil, err
	}
	var from []string
	for _, k := range p.From {
		from = append(from, k.String())
	}
	rs, faults := reg.Decode("", doc)
	if len(faults) > 0 || len(rs) != 1 {
		return nil, nil, fmt.Errorf("internal error: %s/%s, derived from %s, is not valid; "+
			"write it manually and report this: %w",
			p.Kind, p.Name, strings.Join(from, ", "), faults.Err())
	}
	return rs[0], doc, nil
}

// compare records the changes for each dataplane.
func (g *migration) compare(now, live, deleted *generate.Mesh) error {
	names := g.opts.Dataplanes
	if len(names) == 0 {
		for _, d := range now.View.Dataplanes() {
			names = append(names, d.Name)
		}
	}
	memo := generate.NewMemo()
	known := map[string]bool{}
	for _, name := range names {
		var steps [3]*generate.Proxy
		for i, m := range [...]*generate.Mesh{now, live, deleted} {
			p, err := generate.Generate(generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy}, nil, memo)
			if err != nil {
				return err
			}
			steps[i] = p
			for _, line := range lines(p.Warnings) {
				if i > 0 && !known[line] {
					g.out.Warnings = append(g.out.Warnings, line)
				}
				known[line] = true
			}
		}
		p := MigratedProxy{Name: name}
		var err error
		if p.Live, err = g.explained(steps[0], steps[1]); err != nil {
			return err
		}
		if p.Deleted, err = g.explained(steps[1], steps[2]); err != nil {
			return err
		}
		g.out.Dataplanes = append(g.out.Dataplanes, p)
	}
	return nil
}

// explained returns the patch between two configs with the reasons for each operation.
func (g *migration) explained(from, to *generate.Proxy) ([]MigrationChange, error) {
	renderer, err := generate.NewRenderer(nil)
	if err != nil {
		return nil, err
	}
	patch, err := change.Config(renderer, from, to)
	if err != nil || len(patch) == 0 {
		return []MigrationChange{}, err
	}
	e, err := newExplainer(from, g.changes)
	if err != nil {
		return nil, err
	}
	out := make([]MigrationChange, len(patch))
	for i, op := range patch {
		if out[i], err = e.next(op); err != nil {
			return nil, err
		}
	}
	return out, nil
}
