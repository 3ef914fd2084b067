// Package envoy holds the resources of a proxy's config by kind, in the form that packages check
// and match read. It knows no mesh.
//
// It is pure, its work is bounded on every input, and no input makes it panic.
package envoy
