// Package gossip makes a cluster of nodes without a centre: each knows the others, and each has all
// records. It knows nothing of what is in the records.
//
// memberlist finds members and notices when they fail. What is replicated, and how, is decided by
// package engine, a state machine; this package gives it time, chance, a disk and a network, and
// its callers an interface.
//
// Messages travel as memberlist's own packets do: encrypted and authenticated with the keys of the
// pool, and bound to its label. What does not fit a packet goes over streams that are kept open, on
// the same port. Whoever has the key of the pool is believed: records are not signed yet.
package gossip
