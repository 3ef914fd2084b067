// Package envoy knows what an Envoy makes of the config that it is given, beyond the rules that its API carries as
// annotations: what it refuses to load, and what things mean that are written in a language of its own.
//
// This part is about the format strings of access logs, which Envoy calls substitution format strings: [ParseFormat]
// accepts what Envoy accepts when it loads a listener, so that a fault is found when a policy is written and costs the
// policy alone, instead of being found by an Envoy that then rejects the listener as a whole.
//
// The package knows no mesh. It is pure, and it does not panic on any input.
package envoy
