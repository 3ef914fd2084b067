// Package envoy holds the resources of a proxy's config by kind, in the form that packages check
// and match read. It does not depend on the model of a mesh.
//
// It is pure, its work is bounded on every input, and no input makes it panic.
package envoy
