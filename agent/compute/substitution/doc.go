// Package substitution parses the substitution format strings of Envoy's access logs and headers.
//
// [ParseFormat] accepts what Envoy accepts when it loads a listener, so that a fault is found when
// a policy is written.
package substitution
