package mesh

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// managedByKubernetes is the kuma.io/managed-by value of MeshServices that the watcher of
// Kubernetes, or Kuma's controller, makes of Services.
const managedByKubernetes = "k8s-controller"

// warnIdle warns once about all Services of Kubernetes without a pod in the mesh. A single one is
// normal, such as one whose Deployment has no replicas.
func (v *View) warnIdle(services []*resource.Resource) {
	var names []string
	var first resource.Key
	for _, r := range services {
		if r.Labels[resource.LabelManagedBy] != managedByKubernetes || !v.local(r) || !idle(v.ports[r.Key]) {
			continue
		}
		if names = append(names, r.Name); len(names) == 1 {
			first = r.Key
		}
	}
	if len(names) > 0 {
		v.warnf(first, "Services of Kubernetes without a pod in the mesh: %d (%s). Calls of proxies to them fail until they "+
			"have one: inject their pods, or annotate a Service with kuma.io/ignore=true", len(names), list(names, ", "))
	}
}

// idle reports whether a service has ports, but no endpoint, and no other warning.
func idle(ports []*Service) bool {
	return len(ports) > 0 && len(ports[0].warned) == 0 && !slices.ContainsFunc(ports, func(s *Service) bool {
		return len(s.Endpoints.List)+s.NotReady > 0
	})
}
