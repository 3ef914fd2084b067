// Package check finds config that Envoy rejects when it loads it, and config that Envoy loads but
// can never use.
//
// [Checker] applies the rules of package finding to the resources of a proxy: to each resource with
// everything that it packs, to the resources against each other, and to the change from the config
// that the proxy has. Its work is bounded for every input, and no input makes it panic.
package check
