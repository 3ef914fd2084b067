// Package gossip connects nodes into a cluster without a central server. Each node tracks the other
// members and stores all records. The package does not interpret record contents.
//
// memberlist discovers members and detects failures. Package engine, a state machine, decides what
// to replicate and when. This package provides time, randomness, storage, and a network to the
// engine, and an API to callers.
//
// Messages travel as memberlist packets: encrypted and authenticated with the keys of the pool, and
// bound to its label. Messages too large for a packet use long-lived streams on the same port. A
// member with the pool key is trusted: records are not signed yet.
package gossip
