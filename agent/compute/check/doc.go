// Package check knows what Envoy rejects when it loads a config, and what it loads and can never
// use.
//
// [Checker] holds the resources of a proxy to the rules of package finding: one by one with all
// that is packed in them, against each other, and against what the proxy has already. It is bounded
// on any input and does not panic on any.
package check
