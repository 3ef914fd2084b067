package resource

import "slices"

// withoutDeclarations removes each Mesh without settings that a later document of the same stream
// defines. An export of kumactl starts with such declarations.
func withoutDeclarations(list []*Resource) []*Resource {
	later := map[string]bool{}
	for i := len(list) - 1; i >= 0; i-- {
		m, is := list[i].Spec.(*Mesh)
		if !is {
			continue
		}
		x, name := *m, list[i].Name
		x.SkipCreatingInitialPolicies = nil
		if b, _, err := marshalSpec(&x, false); later[name] && err == nil && string(b) == "{}" {
			list = slices.Delete(list, i, i+1)
		}
		later[name] = true
	}
	return list
}
