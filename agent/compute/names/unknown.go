package names

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Unknown describes which answers depend on views that are not known yet.
type Unknown struct {
	// Names are the external names with virtual addresses, sorted.
	Names []string
	// Loopback and Remote are the views of clients without their own view. They see everything, and
	// names of their set fail. Nil: the usual view.
	Loopback, Remote *table.View
}

// Equal reports whether the same answers depend on views in both.
func (u *Unknown) Equal(o *Unknown) bool {
	same := func(a, b *table.View) bool { return (a == nil) == (b == nil) && (a == nil || a.Unknown == b.Unknown) }
	return slices.Equal(u.Names, o.Names) && same(u.Loopback, o.Loopback) && same(u.Remote, o.Remote)
}

// UnknownViews returns what may differ for clients while it is not known which dataplanes have
// proxies on this node.
func UnknownViews(o *Options, meshes []Mesh) Unknown {
	view := func(set table.Unknown) *table.View { return &table.View{All: true, V4: true, V6: true, Unknown: set} }
	out := Unknown{Loopback: view(table.UnknownApart), Remote: view(table.UnknownApart)}
	if o.ReachableOnly {
		out.Remote.Unknown = table.UnknownGroups
	}
	for i := range meshes {
		out.Names = append(append(out.Names, meshes[i].View.Domains...), meshes[i].View.ExternalHosts...)
		for _, dp := range resource.Specs[*resource.Dataplane](meshes[i].View.Dataplanes()) {
			if tp := dp.Networking.TransparentProxying; tp != nil &&
				(tp.IPFamilyMode == resource.IPFamilyIPv4 || tp.IPFamilyMode == resource.IPFamilyIPv6) {
				out.Remote.Unknown = table.UnknownAll
				break
			}
		}
	}
	slices.Sort(out.Names)
	out.Names = slices.Compact(out.Names)
	return out
}

// Domains returns the external names for which the proxies of the local dataplanes accept
// connections at virtual addresses, by dataplane. The names are sorted.
func (t *Table) Domains() map[resource.Key][]string {
	out := map[resource.Key][]string{}
	for _, p := range t.perMesh {
		for i := range p.seen {
			if own := p.own[i].names; len(own) > 0 {
				out[p.seen[i].dataplane] = own
			}
		}
	}
	return out
}
