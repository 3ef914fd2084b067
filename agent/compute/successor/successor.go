// Package successor drafts the targetRef policies that replace source-destination policies
// (legacy). Plugins complete the drafts in the Migrate function of their legacy kind. The package
// is pure.
package successor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kindMesh = "Mesh"

// Target returns the targetRef that selects the proxies, or inbounds, with some tags.
func Target(x *policy.Index, tags map[string]string) resource.TargetRef {
	t := ClientTarget(tags)
	if t.Kind == kindMesh && bare(x) {
		return subsetTarget(tags) // source-destination policies select only inbounds and gateways
	}
	if t.Kind == "MeshService" && x.View.MeshService(resource.Key{Kind: t.Kind, Mesh: x.View.Name, Name: t.Name}) != nil {
		return subsetTarget(tags) // MeshService would also select the resource of that name
	}
	return t
}

// bare reports whether some dataplane has neither a served inbound nor a gateway. Of all targetRef
// kinds only Mesh selects it.
func bare(x *policy.Index) bool {
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
func Expand(in *policy.MigrateInput, match map[string]string) (list []map[string]string, note string) {
	out := []map[string]string{{}}
	var open []string
	for _, k := range slices.Sorted(maps.Keys(match)) {
		values := []string{match[k]}
		if match[k] == "*" {
			if k == resource.TagService {
				continue
			}
			open = append(open, k)
			values = existing(in, k)
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

// existing returns the values that inbounds and gateways of the mesh have for a tag, sorted.
func existing(in *policy.MigrateInput, tag string) []string {
	seen := map[string]bool{}
	for _, dp := range resource.Specs[*resource.Dataplane](in.Index.View.Dataplanes()) {
		for _, tags := range policy.TagSets(in.Index.View, dp) {
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
		if key := policy.SubsetOf(m).Key(); !seen[key] {
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
		return policy.SubsetOf(a).Compare(policy.SubsetOf(b))
	})
	return out, complete
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
func Reach(in *policy.MigrateInput, u *Unit) string {
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
func Routed(in *policy.MigrateInput) string {
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
