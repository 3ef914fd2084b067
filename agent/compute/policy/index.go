// Package policy matches, ranks, and merges policies.
//
// An [Index] holds the ranked policies of one mesh. [Index.Match] selects the policies of one proxy
// and resolves their references. [Match.Rules] merges them into rules for the proxy, each inbound,
// each outbound, and each service resource. Each rule lists its origins in merge order. A [Plugin]
// is one folder below agent/compute/kinds: the kinds that it declares, and their effect on the
// draft of a proxy.
//
// The package knows no kind. It is pure: the same resources in any order produce the same rules.
package policy

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/precedence"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kindMesh = "Mesh"

// Options are the inputs of an index in addition to the resources. The zero value is valid.
type Options struct {
	// Shadow includes policies labeled kuma.io/effect: shadow.
	Shadow bool
	// Instead replaces policies of the set by others of the same key, or ignores them if the value is
	// nil.
	Instead map[resource.Key]*resource.Resource
	// AutoReachable excludes services whose permissions do not admit a proxy from its config.
	AutoReachable bool
	// Prev is an earlier index of the same mesh, whose unchanged results are reused; nil for none.
	Prev *Index
	// Paths are the paths of the node; nil if they are unknown.
	Paths *logpaths.Rules
}

// Index holds the policies of one mesh, ranked. It is immutable.
type Index struct {
	Plugins []Plugin
	View    *mesh.View
	Paths   *logpaths.Rules
	// HasShadow is true if shadow policies were ignored.
	HasShadow bool
	// Warnings report destinations outside the mesh, and services, that policies make unreachable.
	Warnings []mesh.Warning
	// Refers are the resources to which policies refer, by kind.
	Refers map[string][]*resource.Resource

	kinds   []kindIndex // of targetRef policies, in order of application
	legacy  []legacyIndex
	byKind  map[string]int  // index in kinds
	plugins map[string]int  // index in Plugins of a kind
	routing map[string]bool // policy kinds whose routes other policies can target
	outside *outside        // nil if nothing restricts destinations outside the mesh
	guard   *guard          // nil if reachability does not depend on policies
	auto    bool            // whether reachability depends on policies in a mesh with mTLS
	autoBy  string          // the setting behind auto
}

// kindIndex holds the policies of one kind in order of increasing precedence.
type kindIndex struct {
	kind     string
	policies []*resource.Resource
}

type legacyIndex struct {
	kind       string
	replacedBy []string
	policies   []*resource.Resource // sorted by name
}

// NewIndex ranks the policies of the view's mesh.
func NewIndex(plugins []Plugin, set *resource.Set, v *mesh.View, o Options) *Index {
	x := &Index{
		Plugins: plugins, View: v, Paths: o.Paths,
		byKind: map[string]int{}, Refers: map[string][]*resource.Resource{}, plugins: map[string]int{},
		routing: map[string]bool{},
	}
	acting := func(kind string) []*resource.Resource {
		var out []*resource.Resource
		for _, r := range set.InMesh(kind, v.Name) {
			if other, ok := o.Instead[r.Key]; ok {
				r = other
			}
			switch {
			case r == nil:
			case !o.Shadow && r.Shadow():
				x.HasShadow = true
			default:
				out = append(out, r)
			}
		}
		return out
	}
	for i, plugin := range plugins {
		for _, d := range plugin.Kinds {
			list := acting(d.Kind)
			slices.SortStableFunc(list, precedence.Policies)
			x.byKind[d.Kind], x.plugins[d.Kind] = len(x.kinds), i
			if p, ok := d.New().(*resource.Policy); ok && p.Shape != nil && p.Shape.NewConf != nil {
				_, x.routing[d.Kind] = p.Shape.NewConf().(RouteConf)
			}
			x.kinds = append(x.kinds, kindIndex{d.Kind, list})
		}
		for _, l := range plugin.Legacy {
			x.plugins[l.Kind] = i
			x.legacy = append(x.legacy, legacyIndex{l.Kind, l.ReplacedBy, acting(l.Kind)})
		}
		for _, d := range plugin.Refers {
			if d.Scope == resource.ScopeGlobal {
				x.Refers[d.Kind] = set.Kind(d.Kind)
			} else {
				x.Refers[d.Kind] = set.InMesh(d.Kind, v.Name)
			}
		}
	}
	if x.auto, x.autoBy = x.autoReachable(set, o); x.auto {
		var prev *guard
		if o.Prev != nil {
			prev = o.Prev.guard
		}
		x.guard = x.newGuard(set, prev)
	}
	var before *outside
	if o.Prev != nil {
		before = o.Prev.outside
	}
	if x.outside = x.newOutside(set, before); x.outside != nil {
		x.outside.warnClosed(x)
	}
	return x
}

// Policies returns the active policies of a kind in order of increasing precedence. Callers must
// not modify the slice.
func (x *Index) Policies(kind string) []*resource.Resource {
	if i, ok := x.byKind[kind]; ok {
		return x.kinds[i].policies
	}
	return x.legacyOf(kind)
}

func (x *Index) legacyOf(kind string) []*resource.Resource {
	if i := slices.IndexFunc(x.legacy, func(l legacyIndex) bool { return l.kind == kind }); i >= 0 {
		return x.legacy[i].policies
	}
	return nil
}

// Routes reports whether a policy kind has routes that other policies can target.
func (x *Index) Routes(kind string) bool { return x.routing[kind] }

// Rules returns the merged policies of a dataplane.
func (x *Index) Rules(dataplane *resource.Resource) *Rules { return x.Match(dataplane).Rules() }
