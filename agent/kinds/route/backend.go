package route

import (
	"math"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// BackendRef is a destination and its share of the traffic.
type BackendRef struct {
	resource.TargetRef
	Weight *uint32 `json:"weight,omitempty"` // relative to the others; default 1, 0 for none
	Port   *uint32 `json:"port,omitempty"`   // of a MeshService resource
}

// ref is the reference without the share.
func (b *BackendRef) ref() policy.BackendRef {
	return policy.BackendRef{Kind: b.Kind, Name: b.Name, Namespace: b.Namespace, Tags: b.Tags, Labels: b.Labels, Port: toolkit.Or(b.Port, 0)}
}

// checkBackends checks the destinations of a rule and their shares.
func checkBackends(v *resource.Validator, refs []BackendRef) {
	var total uint64
	for i := range refs {
		refs[i].validate(v.Index(i), mesh.KindMeshService, kindSubset, mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService)
		total += uint64(toolkit.Or(refs[i].Weight, 1))
	}
	CheckTotal(v, len(refs), total)
}

// CheckTotal checks the sum of the weights of a split as Envoy does.
func CheckTotal(v *resource.Validator, n int, total uint64) {
	switch {
	case n > 0 && total == 0:
		v.Faultf("all weights are 0, so nothing would go anywhere: give one of them 1 or more")
	case total > math.MaxUint32:
		v.Faultf("the weights add up to %d, at most %d is allowed", total, uint32(math.MaxUint32))
	}
}

func (b *BackendRef) validate(v *resource.Validator, kinds ...string) {
	if b.SectionName != "" {
		v.Field("sectionName").Faultf("a destination is given by its port: give port and remove the name")
	}
	ref := b.TargetRef
	ref.SectionName = ""
	v.Ref(&ref, kinds...)
	switch {
	case b.Port == nil && b.Kind == mesh.KindMeshMultiZoneService:
		v.Field("port").Faultf("the port is missing: kind %s needs one", b.Kind)
	case b.Port != nil && b.Kind == kindSubset:
		v.Field("port").Faultf("port does not go with kind %s, which is found by tags: remove it", b.Kind)
	case b.Port != nil:
		v.Field("port").Port(*b.Port)
	}
}
