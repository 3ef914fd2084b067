package policy

import (
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// producer reports whether a policy belongs to the owners of a namespace and applies to all clients
// of its services. It must not name what is outside of its namespace.
func producer(p *resource.Resource) bool {
	return p.Labels[resource.LabelPolicyRole] == "producer" && p.Namespace() != ""
}

// qualified returns the resource names that a reference of a policy may mean, the most specific
// first.
func qualified(p *resource.Resource, t *resource.TargetRef) []string {
	names := mesh.Qualified(p, t.Name, t.Namespace)
	if producer(p) {
		return names[:1]
	}
	return names
}

// mayTag reports whether an item of a policy may apply to a value of kuma.io/service.
func mayTag(p *resource.Resource, service string) bool {
	if !producer(p) {
		return true
	}
	_, namespace, _, ok := kubernetesService(service)
	return ok && namespace == p.Namespace()
}
