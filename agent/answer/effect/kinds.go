package effect

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// KindOf returns the plugin and the descriptor of a policy kind, and its declaration if it is a
// source-destination (legacy) kind. All are nil if the kind is not a policy kind.
func KindOf(x *policy.Index, kind string) (*policy.Plugin, *resource.Descriptor, *policy.LegacyKind) {
	for i := range x.Plugins {
		plugin := &x.Plugins[i]
		for j := range plugin.Kinds {
			if plugin.Kinds[j].Kind == kind {
				return plugin, &plugin.Kinds[j], nil
			}
		}
		for j := range plugin.Legacy {
			if plugin.Legacy[j].Kind == kind {
				return plugin, &plugin.Legacy[j].Descriptor, &plugin.Legacy[j]
			}
		}
	}
	return nil, nil, nil
}

func isPolicy(x *policy.Index, kind string) bool {
	plugin, _, _ := KindOf(x, kind)
	return plugin != nil
}

// Acts reports whether an index uses this version of a policy.
func Acts(x *policy.Index, r *resource.Resource) bool {
	return slices.ContainsFunc(x.Policies(r.Kind), func(o *resource.Resource) bool {
		return o.Key == r.Key && o.Digest == r.Digest
	})
}

// Active returns the active policies of an index, sorted by key.
func Active(x *policy.Index) (out []*resource.Resource) {
	for i := range x.Plugins {
		for _, d := range x.Plugins[i].Kinds {
			out = append(out, x.Policies(d.Kind)...)
		}
		for _, l := range x.Plugins[i].Legacy {
			out = append(out, x.Policies(l.Kind)...)
		}
	}
	slices.SortFunc(out, func(a, b *resource.Resource) int { return a.Key.Compare(b.Key) })
	return out
}

// NamesMatter reports whether the effect of a policy may depend on the names and addresses of
// proxies, so that it may differ between proxies that are equal otherwise. Beside policies that
// match by name, this is true of every policy.
func NamesMatter(x *policy.Index, r *resource.Resource) bool {
	plugin, _, _ := KindOf(x, r.Kind)
	return plugin != nil && plugin.Reads >= policy.ReadsDataplane ||
		slices.ContainsFunc(Active(x), func(o *resource.Resource) bool {
			plugin, _, _ := KindOf(x, o.Kind)
			return plugin.ByName
		})
}
