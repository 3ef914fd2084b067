// Package danger finds the places of a resource that reach beyond the mesh: patches of Envoy's
// config that name files, sockets, code, or keys, and access logs with the path of a file. Roles
// permit them by features. All functions are pure and safe for concurrent use.
package danger

import (
	"fmt"
	"math"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// kindsOf lists the kinds with dangerous fields.
var kindsOf = map[string]func(*strict.Node) []access.Danger{
	"MeshAccessLog":          func(root *strict.Node) []access.Danger { return logPaths(root.Get("spec"), "spec") },
	"MeshAccessLogBackend":   func(root *strict.Node) []access.Danger { return backendPath(root.Get("spec"), "spec") },
	"GlobalAccessLogBackend": func(root *strict.Node) []access.Danger { return backendPath(root.Get("spec"), "spec") },
	"MeshProxyPatch":         patches,
	"ProxyTemplate":          templates,
	"Mesh":                   func(root *strict.Node) []access.Danger { return logPaths(root.Get("logging"), "logging") },
}

// Of returns the dangers of a valid resource, in the order of its canonical form. Most kinds have
// none and cost nothing.
func Of(r *resource.Resource) []access.Danger {
	find := kindsOf[r.Kind]
	if find == nil {
		return nil
	}
	b, err := resource.Marshal(r)
	if err != nil {
		return opaque("")
	}
	root, fault := strict.One(b, limits)
	if fault != nil || root == nil {
		return opaque("")
	}
	return find(root)
}

// limits permits everything that the decoder of resources permits.
var limits = strict.Limits{FileBytes: math.MaxInt, DocumentBytes: math.MaxInt, Documents: 1, Depth: 1 << 10,
	Nodes: math.MaxInt}

// opaque returns the dangers of content that cannot be examined: all.
func opaque(at string) []access.Danger {
	return []access.Danger{{Feature: access.AllFeatures, Field: at, Reason: "cannot be examined"}}
}

// Features returns the features that a resource needs.
func Features(r *resource.Resource) access.Features { return access.FeaturesOf(Of(r)) }

// logPaths returns the file paths of all lists of backends below a node.
func logPaths(n *strict.Node, at string) (out []access.Danger) {
	if n == nil {
		return nil
	}
	for _, p := range n.Pairs {
		if p.Key != "backends" {
			out = append(out, logPaths(p.Value, at+"."+p.Key)...)
			continue
		}
		for i, b := range p.Value.Items {
			out = append(out, backendPath(b, fmt.Sprintf("%s.%s[%d]", at, p.Key, i))...)
		}
	}
	for i, item := range n.Items {
		out = append(out, logPaths(item, fmt.Sprintf("%s[%d]", at, i))...)
	}
	return out
}

// backendPath returns the file path of a backend.
func backendPath(b *strict.Node, at string) (out []access.Danger) {
	if b == nil {
		return nil
	}
	for _, field := range [...]string{"file", "conf"} {
		if path := b.Get(field).Get("path"); path != nil && path.Text != "" {
			out = append(out, access.Danger{Feature: access.FeatureLogPath, Field: at + "." + field + ".path",
				Reason: fmt.Sprintf("names the log file %q", clip.Value(path.Text))})
		}
	}
	return out
}
