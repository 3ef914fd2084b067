// Package trusttest attacks pools of real agents: a hostile member with the gossip key forges
// records, manifests, members, clocks, and statements of trust.
package trusttest
