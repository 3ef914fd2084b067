package engine

import (
	"github.com/nearside-mesh/nearside/gossip/engine/ident"
	"github.com/nearside-mesh/nearside/gossip/engine/sumtree"
)

// Identifiers of entries; see package ident.
type (
	Key     = ident.Key
	Hash    = ident.Hash
	NodeID  = ident.NodeID
	Slot    = ident.Slot
	Version = ident.Version
	Head    = ident.Head
	Digest  = sumtree.Digest
	Prefix  = sumtree.Prefix
)

// ParseNodeID parses the output of NodeID.String.
func ParseNodeID(s string) (NodeID, error) { return ident.ParseNodeID(s) }
