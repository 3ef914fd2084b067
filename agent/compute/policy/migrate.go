package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// MigrateInput is the input for migrating the policies of one legacy kind.
type MigrateInput struct {
	Index *Index // of the mesh, without shadow policies
	// Policies are the active policies of the kind, sorted by name.
	Policies []*resource.Resource
	// NameExists reports whether a policy of a kind with this name exists; nil means that none does.
	NameExists func(kind, name string) bool
}

// Migration is the result of migrating the policies of a legacy kind.
type Migration struct {
	Policies []Migrated
	// Without lists the policies that have no successor.
	Without []WithoutSuccessor
	// Changes explain the differences that successors cause in the config of a proxy.
	Changes []Change
}

// Migrated is a targetRef policy that replaces legacy ones. It has no labels yet.
type Migrated struct {
	Kind, Name string
	Spec       *resource.Policy
	From       []resource.Key // the legacy policies
	// Notes describe differences from the legacy policies and what the user has to check.
	Notes []string
}

// WithoutSuccessor is a legacy policy that has no successor, because it needs none or none is
// possible.
type WithoutSuccessor struct {
	Policy resource.Key
	Why    string
}

// Change explains a difference between the config of legacy policies and that of their successors.
// A field is identified by its path in the config, such as
//
//	Listener/outbound:10.0.0.1:80/filterChains/0/filters/envoy.filters.network.tcp_proxy/typedConfig/idleTimeout
//
// in which list items are identified by their name if they have one.
type Change struct {
	Path string // segments separated by "/": "x*" matches a segment with the prefix x, "**" any number of segments
	// Before and After are values as JSON: "" for an absent value, Any for any value.
	Before, After string
	Why           string
	// Same is true if Envoy behaves as before; otherwise the policies mean something else.
	Same bool
	// If, when set, must return true for the two values as decoded by encoding/json. The values are
	// then compared as a whole.
	If func(before, after any) bool
}

// Any matches any value, or none, in a Change.
const Any = "*"

// Explains reports whether c covers a change of the field at path. The arguments have the forms of
// Path, Before, and After.
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
		case len(path) == 0 || !matchSegment(pattern[0], path[0]):
			return false
		}
		pattern, path = pattern[1:], path[1:]
	}
	return len(path) == 0
}

func matchSegment(pattern, segment string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return pattern == segment || open && strings.HasPrefix(segment, prefix)
}

// Target returns the targetRef that selects the proxies, or inbounds, with some tags.
func (x *Index) Target(tags map[string]string) resource.TargetRef {
	t := ClientTarget(tags)
	if t.Kind == kindMesh && x.bare() {
		return subsetTarget(tags) // source-destination policies select only inbounds and gateways
	}
	if t.Kind == "MeshService" && x.View.MeshService(resource.Key{Kind: t.Kind, Mesh: x.View.Name, Name: t.Name}) != nil {
		return subsetTarget(tags) // MeshService would also select the resource of that name
	}
	return t
}

// bare reports whether some dataplane has neither a served inbound nor a gateway. Of all targetRef
// kinds only Mesh selects it.
func (x *Index) bare() bool {
	return slices.ContainsFunc(x.View.Dataplanes(), func(r *resource.Resource) bool {
		dp, ok := r.Spec.(*resource.Dataplane)
		return ok && dp.Networking.Gateway == nil &&
			!slices.ContainsFunc(dp.Networking.Inbound, func(in resource.Inbound) bool {
				return in.State != resource.InboundIgnored
			})
	})
}

// ClientTarget returns the targetRef of an item for the clients with some tags.
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

// maxExpanded limits the expansion of one selector.
const maxExpanded = 256

// Expand expands "*" in a selector of a legacy policy: it returns selectors that together match the
// same of the existing dataplanes, because targetRef policies require values. The note describes
// the expansion; it is "" if nothing was expanded.
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
			note = fmt.Sprintf("the values of the tags %s form more than %d combinations, and only the first ones are covered; ",
				strings.Join(open, ", "), maxExpanded)
		}
		out = next
	}
	if len(open) > 0 {
		note += fmt.Sprintf("a targetRef policy cannot match a tag with any value, so it lists the current values of %s; "+
			"a new value needs another policy", strings.Join(open, ", "))
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

// Meet reports whether the tags of a and b are compatible.
func Meet(a, b map[string]string) bool {
	for k, v := range a {
		if w, ok := b[k]; ok && w != v {
			return false
		}
	}
	return true
}

// Closure returns the selectors and their compatible combinations, each once, sorted by the number
// of tags and then by the tags. complete is false if the result reached the limit and is
// incomplete.
func Closure(list []map[string]string, limit int) (out []map[string]string, complete bool) {
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
	complete = len(out) <= limit
	for i := 0; i < len(out) && complete; i++ {
		for j := 0; j < i && complete; j++ {
			if a, b := out[i], out[j]; Meet(a, b) {
				both := maps.Clone(a)
				maps.Copy(both, b)
				add(both)
				complete = len(out) <= limit
			}
		}
	}
	slices.SortFunc(out, func(a, b map[string]string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return subsetOf(a).compare(subsetOf(b))
	})
	return out, complete
}

// Ruled returns the policies of some kinds that select a dataplane.
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

// Items returns the to items of a unit for outbound connections.
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

// Reach returns a note about the service resources that outbound policies select in addition to the
// values of kuma.io/service, to which source-destination policies are limited. It returns "" if
// there are none.
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

// Routed returns a note that the legacy kind has no effect on connections routed by a MeshHTTPRoute
// or MeshTCPRoute. It returns "" if the mesh has none.
func (in *MigrateInput) Routed() string {
	var names []string
	for _, plugin := range in.Index.Plugins {
		if plugin.Outbound == nil {
			continue // no route policy
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
	return "the legacy policy has no effect where a MeshHTTPRoute or MeshTCPRoute applies (" + FirstNames(names) +
		"); this policy has"
}

// AddNote adds a note unless it is empty or present.
func AddNote(list *[]string, note string) {
	if note != "" && !slices.Contains(*list, note) {
		*list = append(*list, note)
	}
}
