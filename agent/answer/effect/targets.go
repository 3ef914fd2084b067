package effect

import (
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Targets returns the references of a policy that lead nowhere, with the nearest name that exists.
func Targets(_ *generate.Mesh, _ *resource.Resource) []mesh.Warning { return nil }
