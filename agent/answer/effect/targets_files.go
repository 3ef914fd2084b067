package effect

import (
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// filed is a conf or spec that may name log files.
type filed interface {
	FileWarnings(paths *logpaths.Rules) []string
}

// fileWarnings returns the warnings about the log files of a policy, or of a resource to which
// policies refer.
func fileWarnings(r *resource.Resource, paths *logpaths.Rules) (out []mesh.Warning) {
	add := func(x any) {
		if g, ok := x.(filed); ok {
			for _, why := range g.FileWarnings(paths) {
				out = append(out, mesh.Warning{Resource: r.Key, Reason: why})
			}
		}
	}
	add(r.Spec)
	if p, ok := r.Spec.(*resource.Policy); ok {
		for _, item := range slices.Concat(p.From, p.Rules, p.To) {
			add(item.Conf)
		}
	}
	return out
}

// backendFiles returns the warnings about log files of the mesh's logging and of the resources to
// which policies refer.
func backendFiles(m *generate.Mesh) (out []mesh.Warning) {
	paths := m.Policies.Paths
	if l := m.View.Spec.Logging; l != nil {
		for _, b := range l.Backends {
			if b.Type != resource.LoggingFile || b.Conf == nil {
				continue
			}
			if why := paths.Warning(b.Conf.Path, false); why != "" {
				out = append(out, mesh.Warning{Resource: resource.Key{Kind: "Mesh", Name: m.View.Name}, Reason: why})
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(m.Policies.Refers)) {
		for _, r := range m.Policies.Refers[kind] {
			out = append(out, fileWarnings(r, paths)...)
		}
	}
	return out
}
