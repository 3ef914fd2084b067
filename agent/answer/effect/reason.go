package effect

import (
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// question asks why a policy, or one field of it, has no effect on a proxy. Nothing overrides it.
type question struct {
	mesh      *generate.Mesh
	dataplane *resource.Resource
	policy    *resource.Resource

	// The fields below are set for a field.

	item     string          // path of the item's conf in the document, such as spec.to[0].default
	path     string          // of the field in the conf, such as http.requestTimeout
	services []*mesh.Service // destinations with the same answer; nil for an inbound or the whole proxy
	inbound  int             // index of the inbound, or -1
}

// reasonOf says why a policy, or a field of it, has no effect: "redis speaks tcp". It returns "" if
// the reason is unknown.
func reasonOf(_ question) string { return "" }
