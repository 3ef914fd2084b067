package policy

import "github.com/nearside-mesh/nearside/agent/model/resource"

// Permitting returns an index whose Permissions need no preparation. It is for callers that ask
// about many dataplanes. set must be the resource set of the index.
func (x *Index) Permitting(set *resource.Set) *Index {
	if x.guard != nil {
		return x
	}
	out := *x
	out.guard = x.newGuard(set, nil)
	return &out
}

// PermissionPlugins returns the plugins that decide which clients an inbound admits.
func (x *Index) PermissionPlugins() []*Plugin {
	var out []*Plugin
	for i := range x.Plugins {
		if x.Plugins[i].Admits != nil {
			out = append(out, &x.Plugins[i])
		}
	}
	return out
}

// MatchPermissions is like [Index.Match] but selects only the policies that decide which clients an
// inbound admits. plugins are those of [Index.PermissionPlugins].
func (x *Index) MatchPermissions(dataplane *resource.Resource, plugins []*Plugin) *Match {
	return x.match(x.selector(dataplane), func(kind string) bool {
		for _, p := range plugins {
			for i := range p.Kinds {
				if p.Kinds[i].Kind == kind {
					return true
				}
			}
			for i := range p.Legacy {
				if p.Legacy[i].Kind == kind {
					return true
				}
			}
		}
		return false
	})
}
