// Package record encodes, decodes, signs, and merges the entries that engines replicate: records,
// which every node can write, and manifests, which list the items of their owner.
package record

import "github.com/nearside-mesh/nearside/gossip/engine/ident"

// Identifiers of entries; see package ident.
type (
	Key     = ident.Key
	Hash    = ident.Hash
	NodeID  = ident.NodeID
	Slot    = ident.Slot
	Version = ident.Version
	Head    = ident.Head
)
