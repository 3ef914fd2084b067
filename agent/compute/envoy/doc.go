// Package envoy holds the resources of a proxy's config by kind, in the form in which its
// subpackages read them: finding, what a check has to say; load, what Envoy rejects or can never
// use; match, which way connections and requests go; substitution, the format strings of access
// logs.
//
// The packages know no mesh. They are pure, bounded on any input, and do not panic on any.
package envoy
