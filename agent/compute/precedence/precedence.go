// Package precedence orders policies and their items. It is the only place that compares them, so
// that every kind, and every way to select clients or destinations, follows one table; see
// docs/policies.md. All functions are total orders on the values that they compare, except that
// equal items of one policy compare as equal and keep their order in the document.
package precedence

import (
	"cmp"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// strength ranks the targetRef kinds from the least to the most specific. A route is the most
// specific.
var strength = map[string]int{
	"Mesh": 1, "MeshSubset": 2, "MeshGateway": 3, "MeshService": 4, "MeshExternalService": 5, "MeshMultiZoneService": 6,
	"MeshServiceSubset": 7, "Dataplane": 8, "MeshGatewayRoute": 11,
}

const strengthRoute = 12

// refStrength returns the rank of a targetRef; nil means the mesh.
func refStrength(t *resource.TargetRef) int {
	if t == nil {
		return strength["Mesh"]
	}
	s, ok := strength[t.Kind]
	if !ok {
		return strengthRoute
	}
	if t.Kind == "Dataplane" { // by labels, by name, one inbound of it
		if t.Name != "" {
			s++
		}
		if t.SectionName != "" {
			s++
		}
	}
	return s
}

// roles ranks the values of kuma.io/policy-role: policies of the workload's owner take precedence.
var roles = map[string]int{"": 0, "system": 0, "producer": 1, "consumer": 2, "workload-owner": 3}

// Targets orders targetRefs by increasing precedence; nil means the mesh.
func Targets(a, b *resource.TargetRef) int { return cmp.Compare(refStrength(a), refStrength(b)) }

// Policies orders policies of one kind by increasing precedence.
func Policies(a, b *resource.Resource) int { return cmp.Or(reach(a, b), names(a, b)) }

// Items orders items of policies of one kind, given by their policies and targetRefs, by increasing
// precedence. Items that compare as equal are in one policy.
func Items(a, b *resource.Resource, at, bt *resource.TargetRef) int {
	return cmp.Or(reach(a, b), Targets(at, bt), names(a, b))
}

// reach orders policies by targetRef, origin, and role.
func reach(a, b *resource.Resource) int {
	s, t := topOf(a), topOf(b)
	tags := func(t *resource.TargetRef) int {
		if t == nil || t.Kind != "MeshGateway" {
			return 0
		}
		return len(t.Tags)
	}
	local := func(r *resource.Resource) int {
		if r.Labels[resource.LabelOrigin] == "global" {
			return 0
		}
		return 1
	}
	return cmp.Or(
		Targets(s, t),
		cmp.Compare(local(a), local(b)),
		cmp.Compare(tags(s), tags(t)),
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
