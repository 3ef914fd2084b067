package engine

import (
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/ident"
	"github.com/nearside-mesh/nearside/gossip/engine/record"
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

// Entries and their parts; see package record.
type (
	Record   = record.Record
	Manifest = record.Manifest
	Entry    = record.Entry
	BodyHash = record.BodyHash
	HLC      = record.HLC
	Writer   = record.Writer
	Ancestor = record.Ancestor
	Relation = record.Relation
	Origin   = record.Origin
	Put      = record.Put

	owner = record.Owner
)

// Relations of a version that lost to the winner; see package record.
const (
	Superseded = record.Superseded
	Concurrent = record.Concurrent
	Undecided  = record.Undecided
)

// Limits of entries; see package record.
const (
	MaxRecord          = record.MaxRecord
	MaxLineage         = record.MaxLineage
	MaxManifest        = record.MaxManifest
	MaxManifestEntries = record.MaxManifestEntries
	MaxBody            = record.MaxBody
	MaxDetail          = record.MaxDetail
)

// HashBody returns the hash of a body.
func HashBody(b []byte) BodyHash { return record.HashBody(b) }

// Successor returns the version that a change creates; see package record.
func Successor(now time.Time, parent *Record, p Put, of Origin) (*Record, error) {
	return record.Successor(now, parent, p, of)
}

// DecodeRecord decodes a record without verifying its signature; see package record.
func DecodeRecord(b []byte) (*Record, error) { return record.DecodeRecord(b) }

// LoadRecord decodes a record that this node has verified and stored; see package record.
func LoadRecord(b []byte) (*Record, error) { return record.LoadRecord(b) }

// DecodeManifest decodes a manifest without verifying its signature; see package record.
func DecodeManifest(b []byte) (*Manifest, error) { return record.DecodeManifest(b) }

// Merge returns the winning version of a key; see package record.
func Merge(a, b *Record) (winner, loser *Record, rel Relation) { return record.Merge(a, b) }
