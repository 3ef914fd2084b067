package resource

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Scope tells whether the resources of a kind belong to a mesh.
type Scope int

const (
	ScopeMesh Scope = iota
	ScopeGlobal
)

// Descriptor declares one kind to the decoder, the store, the API, and the commands.
type Descriptor struct {
	Kind   string // "MeshTimeout"
	Plural string // URL path segment in the HTTP API, "meshtimeouts"
	Short  string // Kuma's short name ("dp", "mt"); may be ""
	Scope  Scope
	// SpecAtTop is true for kinds whose universal form has the spec's fields at the top level:
	// Mesh, Dataplane, ExternalService, ZoneEgress, ZoneIngress, and the legacy policies.
	SpecAtTop bool
	// New returns an empty spec to decode into.
	New func() Spec
	// Policy is true for kinds that apply to proxies through a targetRef or (Legacy) selectors.
	// Only these may have kuma.io/effect.
	Policy bool
	Legacy bool
	// Inert is true for kinds that are decoded, validated, and stored without effect. Writing one
	// causes a warning.
	Inert bool
	// Staged is true for kinds whose changes can reach proxies in several steps, all for one revision.
	Staged bool
}

// Registry finds descriptors by any of their names. It is immutable.
type Registry struct {
	list   []Descriptor // in the order given
	byName map[string]int

	workers int // see [Registry.On]
	each    func(workers, n int, do func(worker, i int)) error
	tags    func(*strict.Decoder, []strict.Pair) map[string]string // see [Registry.Sharing]; nil: nothing is shared
}

// NewRegistry returns a registry of the given kinds. It fails if two kinds share a name or a
// descriptor is incomplete.
func NewRegistry(ds ...Descriptor) (*Registry, error) {
	r := &Registry{list: ds, byName: make(map[string]int, 3*len(ds))}
	for i, d := range ds {
		if d.Kind == "" || d.Plural == "" || d.New == nil {
			return nil, fmt.Errorf("descriptor %d (%q): Kind, Plural and New are required", i, d.Kind)
		}
		if got := specAtTop(d.New()); got != d.SpecAtTop {
			return nil, fmt.Errorf("kind %s: SpecAtTop is %v, but its spec is written as %v", d.Kind, d.SpecAtTop, got)
		}
		names := map[string]bool{strings.ToLower(d.Kind): true, strings.ToLower(d.Plural): true}
		if d.Short != "" {
			names[strings.ToLower(d.Short)] = true
		}
		for n := range names {
			if j, ok := r.byName[n]; ok {
				return nil, fmt.Errorf("kinds %s and %s share the name %q", ds[j].Kind, d.Kind, n)
			}
			r.byName[n] = i
		}
	}
	return r, nil
}

// Lookup returns the kind with a name in any case: the kind, its plural, or its short name.
func (r *Registry) Lookup(name string) (Descriptor, bool) {
	i, ok := r.byName[strings.ToLower(name)]
	if !ok {
		return Descriptor{}, false
	}
	return r.list[i], true
}

// All returns the descriptors in registration order. Callers must not modify the slice.
func (r *Registry) All() []Descriptor { return r.list }

// Core returns the descriptors of the kinds that make up a mesh without policies. Plurals and short
// names are those of Kuma's API and kumactl.
func Core() []Descriptor {
	return []Descriptor{
		{Kind: "Mesh", Plural: "meshes", Scope: ScopeGlobal, SpecAtTop: true, Staged: true,
			New: func() Spec { return new(Mesh) }},
		{Kind: "Dataplane", Plural: "dataplanes", Short: "dp", SpecAtTop: true, New: func() Spec { return new(Dataplane) }},
		{Kind: "ExternalService", Plural: "external-services", SpecAtTop: true,
			New: func() Spec { return new(ExternalService) }},
		{Kind: "VirtualOutbound", Plural: "virtual-outbounds", SpecAtTop: true,
			New: func() Spec { return new(VirtualOutbound) }},
		{Kind: "MeshService", Plural: "meshservices", Short: "msvc", New: func() Spec { return new(MeshService) }},
		{Kind: "MeshExternalService", Plural: "meshexternalservices", Short: "extsvc",
			New: func() Spec { return new(MeshExternalService) }},
		{Kind: "MeshMultiZoneService", Plural: "meshmultizoneservices", Short: "mzsvc",
			New: func() Spec { return new(MeshMultiZoneService) }},
		{Kind: kindHostnameGenerator, Plural: "hostnamegenerators", Short: "hg", Scope: ScopeGlobal,
			New: func() Spec { return new(HostnameGenerator) }},
		{Kind: "Workload", Plural: "workloads", Short: "wl", Inert: true, New: func() Spec { return new(Workload) }},
		{Kind: "ZoneEgress", Plural: "zoneegresses", Scope: ScopeGlobal, SpecAtTop: true,
			New: func() Spec { return new(ZoneEgress) }},
		{Kind: "ZoneIngress", Plural: "zoneingresses", Scope: ScopeGlobal, SpecAtTop: true,
			New: func() Spec { return new(ZoneIngress) }},
	}
}
