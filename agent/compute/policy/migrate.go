package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// MigrateInput is what the successors of the policies of one legacy kind are made from.
type MigrateInput struct {
	Index *Index // of the mesh, without shadow policies
	// Policies are those of the kind that act, sorted by name.
	Policies []*resource.Resource
	// Taken reports whether a name is not free for a new policy of a kind; nil: all are free.
	Taken func(kind, name string) bool
}

// Migration is the successors of the policies of a legacy kind.
type Migration struct {
	Policies []Migrated
	// Without are the policies that have no successor.
	Without []WithoutSuccessor
	// Changes explain what successors change in the config of a proxy although they say the same.
	Changes []Change
}

// Migrated is a targetRef policy that takes over from legacy ones. It has no labels yet.
type Migrated struct {
	Kind, Name string
	Spec       *resource.Policy
	From       []resource.Key // the legacy policies
	// Notes say what cannot be the same and why, and what has to be looked after.
	Notes []string
}

// WithoutSuccessor is a legacy policy that needs no successor, or can have none.
type WithoutSuccessor struct {
	Policy resource.Key
	Why    string
}

// Change explains a difference between the config that legacy policies make and the one of their
// successors. A field is named by its way through the config, such as
//
//	Listener/outbound:10.0.0.1:80/filterChains/0/filters/envoy.filters.network.tcp_proxy/typedConfig/idleTimeout
//
// in which items of lists go by their name where they have one.
type Change struct {
	Path string // parts separated by "/": "*" ends a part that begins like this, "**" is any number of parts
	// Before and After are values as JSON: "" for none, Any for whatever it is.
	Before, After string
	Why           string
	// Same is true where Envoy does the same as before; else the policies say something else.
	Same bool
	// If, when set, must hold of the two values, as encoding/json decodes them; then they are compared
	// as a whole.
	If func(before, after any) bool
}

// Any stands in a Change for any value, or none.
const Any = "*"

// Explains reports whether the change is that of a field from one value to another, in the forms of
// Path and Before.
func (c *Change) Explains(path []string, before, after string) bool {
	return (c.Before == Any || c.Before == before) && (c.After == Any || c.After == after) &&
		matchPath(strings.Split(c.Path, "/"), path)
}

func matchPath(pattern, path []string) bool {
	for len(pattern) > 0 {
		switch {
		case pattern[0] == "**":
			for i := range len(path) + 1 {
				if matchPath(pattern[1:], path[i:]) {
					return true
				}
			}
			return false
		case len(path) == 0 || !matchPart(pattern[0], path[0]):
			return false
		}
		pattern, path = pattern[1:], path[1:]
	}
	return len(path) == 0
}

func matchPart(pattern, part string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return pattern == part || open && strings.HasPrefix(part, prefix)
}

// Target returns the targetRef of policies about the proxies, or inbounds, with some tags.
func (x *Index) Target(tags map[string]string) resource.TargetRef {
	t := ClientTarget(tags)
	if t.Kind == kindMesh && x.bare() {
		return subsetTarget(tags) // source-destination policies select inbounds and gateways
	}
	if t.Kind == "MeshService" && x.View.MeshService(resource.Key{Kind: t.Kind, Mesh: x.View.Name, Name: t.Name}) != nil {
		return subsetTarget(tags) // else the resource of that name would be meant too
	}
	return t
}

// bare reports whether some dataplane has neither an inbound that is served nor a gateway: of the
// targetRefs only Mesh selects it.
func (x *Index) bare() bool {
	return slices.ContainsFunc(x.View.Dataplanes(), func(r *resource.Resource) bool {
		dp, ok := r.Spec.(*resource.Dataplane)
		return ok && dp.Networking.Gateway == nil &&
			!slices.ContainsFunc(dp.Networking.Inbound, func(in resource.Inbound) bool {
				return in.State != resource.InboundIgnored
			})
	})
}

// ClientTarget returns the targetRef of an item about the clients with some tags.
func ClientTarget(tags map[string]string) resource.TargetRef {
	service, rest := tags[resource.TagService], maps.Clone(tags)
	delete(rest, resource.TagService)
	switch {
	case len(tags) == 0:
		return resource.TargetRef{Kind: kindMesh}
	case service == "":
		return subsetTarget(tags)
	case len(rest) == 0:
		return resource.TargetRef{Kind: "MeshService", Name: service}
	}
	return resource.TargetRef{Kind: "MeshServiceSubset", Name: service, Tags: rest}
}

func subsetTarget(tags map[string]string) resource.TargetRef {
	return resource.TargetRef{Kind: "MeshSubset", Tags: maps.Clone(tags)}
}

// maxExpanded bounds what one selector becomes.
const maxExpanded = 256

// Expand returns selectors without "*" that match together, among the dataplanes that there are,
// what a selector of a legacy policy matches: targetRef policies want values. The note says so
// where values were filled in; it is "" else.
func (in *MigrateInput) Expand(match map[string]string) (list []map[string]string, note string) {
	out := []map[string]string{{}}
	var open []string
	for _, k := range slices.Sorted(maps.Keys(match)) {
		values := []string{match[k]}
		if match[k] == "*" {
			if k == resource.TagService {
				continue
			}
			open = append(open, k)
			values = in.values(k)
		}
		var next []map[string]string
		for _, m := range out {
			for _, v := range values {
				with := maps.Clone(m)
				with[k] = v
				next = append(next, with)
			}
		}
		if len(next) > maxExpanded {
			next = next[:maxExpanded]
			note = fmt.Sprintf("the values of the tags %s make more than %d combinations: the first are covered; ",
				strings.Join(open, ", "), maxExpanded)
		}
		out = next
	}
	if len(open) > 0 {
		note += fmt.Sprintf("a targetRef policy cannot want a tag with any value: the values of %s that dataplanes have "+
			"today are filled in, and another one needs a policy of its own", strings.Join(open, ", "))
	}
	return out, note
}

// values returns the values that inbounds and gateways of the mesh have for a tag, sorted.
func (in *MigrateInput) values(tag string) []string {
	seen := map[string]bool{}
	for _, dp := range resource.Specs[*resource.Dataplane](in.Index.View.Dataplanes()) {
		for _, tags := range tagSets(in.Index.View, dp) {
			if v, ok := tags[tag]; ok {
				seen[v] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Covers reports whether whatever has the tags of b has those of a.
func Covers(a, b map[string]string) bool {
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

// Meet reports whether something can have the tags of both.
func Meet(a, b map[string]string) bool {
	for k, v := range a {
		if w, ok := b[k]; ok && w != v {
			return false
		}
	}
	return true
}

// Closure returns selectors and what is selected by several of them, each once, sorted by the
// number of tags and then by these. It stops at a limit and says so: then some combinations are
// missing.
func Closure(list []map[string]string, limit int) (out []map[string]string, whole bool) {
	seen := map[string]bool{}
	add := func(m map[string]string) {
		if key := subsetOf(m).key(); !seen[key] {
			seen[key] = true
			out = append(out, m)
		}
	}
	for _, m := range list {
		add(m)
	}
	whole = len(out) <= limit
	for i := 0; i < len(out) && whole; i++ {
		for j := 0; j < i && whole; j++ {
			if a, b := out[i], out[j]; Meet(a, b) {
				both := maps.Clone(a)
				maps.Copy(both, b)
				add(both)
				whole = len(out) <= limit
			}
		}
	}
	slices.SortFunc(out, func(a, b map[string]string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return subsetOf(a).compare(subsetOf(b))
	})
	return out, whole
}

// Ruled returns the policies of some kinds that act on a dataplane.
func (x *Index) Ruled(dataplane *resource.Resource, kinds ...string) []*resource.Resource {
	var out []*resource.Resource
	for _, k := range kinds {
		for _, p := range x.Policies(k) {
			if x.Select(p, dataplane).Proxy {
				out = append(out, p)
			}
		}
	}
	return out
}

// Items returns what a unit about connections that leave says to each of its destinations.
func (u *Unit) Items(conf resource.Conf) []resource.PolicyItem {
	if u.All {
		return []resource.PolicyItem{{TargetRef: resource.TargetRef{Kind: kindMesh}, Conf: conf}}
	}
	out := make([]resource.PolicyItem, len(u.To))
	for i, s := range u.To {
		out[i] = resource.PolicyItem{TargetRef: resource.TargetRef{Kind: mesh.KindMeshService, Name: s}, Conf: conf}
	}
	return out
}

// Reach says what policies about destinations reach beside the values of kuma.io/service, which
// source-destination policies alone are about; "" for nothing.
func (in *MigrateInput) Reach(u *Unit) string {
	beside := slices.ContainsFunc(in.Index.View.Services(), func(s *mesh.Service) bool {
		return s.ID.Kind != mesh.KindTag &&
			(u.All || s.ID.Kind == mesh.KindMeshService && slices.Contains(u.To, s.Resource.Name))
	})
	if !beside {
		return ""
	}
	return "it also applies to MeshService, MeshExternalService and MeshMultiZoneService resources; " +
		"the legacy policy did not"
}

// Routed says that the legacy kind does nothing where a MeshHTTPRoute or MeshTCPRoute leads; ""
// when there are none.
func (in *MigrateInput) Routed() string {
	var names []string
	for _, plugin := range in.Index.Plugins {
		if plugin.Outbound == nil {
			continue // it leads nowhere
		}
		for _, d := range plugin.Kinds {
			for _, p := range in.Index.Policies(d.Kind) {
				names = append(names, p.Key.String())
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "where a MeshHTTPRoute or MeshTCPRoute leads (" + firstNames(names) +
		") the legacy policy has no effect; this one has"
}

// AddNote adds a note that is not empty, once.
func AddNote(list *[]string, note string) {
	if note != "" && !slices.Contains(*list, note) {
		*list = append(*list, note)
	}
}
