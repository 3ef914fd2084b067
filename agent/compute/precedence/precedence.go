// Package precedence orders policies and their items. It is the only place that compares them, so
// that every kind, and every way to select clients or destinations, follows one table; see
// docs/policies.md. Items of one policy that compare as equal keep their order in the document.
package precedence

import (
	"cmp"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// kinds ranks the kinds of targetRefs from the least to the most specific. Other kinds are routes,
// which are more specific than all of these.
var kinds = map[string]int{
	"Mesh": 1, "Dataplane": 2, "MeshSubset": 3, "MeshGateway": 4, "MeshService": 5, "MeshExternalService": 6,
	"MeshMultiZoneService": 7, "MeshServiceSubset": 8, "MeshGatewayRoute": 9,
}

const routes = 10

// roles ranks the values of kuma.io/policy-role: policies of the workload's owner take precedence.
var roles = map[string]int{"": 0, "system": 0, "producer": 1, "consumer": 2, "workload-owner": 3}

var wholeMesh = &resource.TargetRef{Kind: "Mesh"}

// Targets orders targetRefs by increasing precedence; nil means the mesh. A part of a target takes
// precedence over the whole target, and a dataplane by name over dataplanes by labels.
func Targets(a, b *resource.TargetRef) int {
	a, b = cmp.Or(a, wholeMesh), cmp.Or(b, wholeMesh)
	return cmp.Or(
		cmp.Compare(kindRank(a), kindRank(b)),
		cmp.Compare(named(a), named(b)),
		cmp.Compare(present(a.SectionName), present(b.SectionName)),
	)
}

func kindRank(t *resource.TargetRef) int { return cmp.Or(kinds[t.Kind], routes) }

func named(t *resource.TargetRef) int {
	if t.Kind != "Dataplane" {
		return 0
	}
	return present(t.Name)
}

func present(s string) int {
	if s == "" {
		return 0
	}
	return 1
}

// Policies orders policies of one kind by increasing precedence.
func Policies(a, b *resource.Resource) int { return cmp.Or(attributes(a, b), names(a, b)) }

// Items orders items for destinations that are resources, given by their policies and targetRefs,
// by increasing precedence. Items that compare as equal belong to one policy.
func Items(a, b *resource.Resource, at, bt *resource.TargetRef) int {
	return cmp.Or(attributes(a, b), Targets(at, bt), names(a, b))
}

// attributes orders policies by targetRef, origin, and role.
func attributes(a, b *resource.Resource) int {
	local := func(r *resource.Resource) int {
		if r.Labels[resource.LabelOrigin] == "global" {
			return 0
		}
		return 1
	}
	return cmp.Or(
		Targets(topOf(a), topOf(b)),
		cmp.Compare(local(a), local(b)),
		cmp.Compare(roles[a.Labels[resource.LabelPolicyRole]], roles[b.Labels[resource.LabelPolicyRole]]),
	)
}

// names gives precedence to the alphabetically first name.
func names(a, b *resource.Resource) int {
	return cmp.Or(strings.Compare(b.DisplayName(), a.DisplayName()), strings.Compare(b.Name, a.Name))
}

func topOf(r *resource.Resource) *resource.TargetRef {
	if p, ok := r.Spec.(*resource.Policy); ok {
		return p.TargetRef
	}
	return nil
}
