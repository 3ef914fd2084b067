package record

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine/ident"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

// Limits of a manifest.
const (
	MaxManifest        = 64 << 10 // bytes of an encoded manifest
	MaxManifestEntries = 1000
	MaxBody            = 16 << 10 // bytes of a body
	MaxDetail          = 253      // bytes of the detail of a directory
	MaxNodeName        = 253
	MaxShards          = 1024
)

// BodyHash identifies the body of an entry by its SHA-256 sum.
type BodyHash [sha256.Size]byte

// HashBody returns the hash of a body.
func HashBody(b []byte) BodyHash { return sha256.Sum256(b) }

// Entry is one item of a node.
type Entry struct {
	Key  Key
	Hash BodyHash
}

// Manifest lists items of a node, or of a directory that nodes publish. The items of a large owner
// are split into shards by a hash of their keys: each shard is a manifest. A set of shards is
// complete if all of them have the epoch of the first. A manifest is immutable.
type Manifest struct {
	Node NodeID // or the ID of the directory
	Name string // display name of the owner; only in the first shard
	// Order holds the epoch in the upper 40 bits and a sequence number in the lower 24 bits. The epoch
	// grows with each start.
	Order     uint64
	Leaving   bool // the node left permanently; only in the first shard
	Forgotten bool // a node declared it permanently gone; its items are dropped
	Entries   []Entry
	Index     int    // of the shard
	Shards    int    // number of shards, at least 1
	Directory bool   // the owner is a directory, not a node
	Detail    string // of a directory, for display; only in the first shard
	Cluster   string // cluster of the node that wrote the manifest; empty from earlier builds
	// Signed means that the manifest must have a signature: by the key of the node, or of a node that
	// publishes the directory or declared the node gone. It is part of the content, so the signature
	// cannot be removed.
	Signed    bool
	Signature []byte // of the content; see package sign. Not part of the version

	raw    []byte
	digest Hash
	signer sign.ID // verified
}

// Fields of a manifest's content.
const (
	manifestNode = iota + 1
	manifestName
	manifestOrder
	manifestLeaving
	manifestForgotten
	manifestEntry
	manifestIndex
	manifestShards
	manifestDirectory
	manifestDetail
	manifestDomain
	manifestCluster
	manifestSigned
)

// Fields of an entry.
const (
	entryKind = iota + 1
	entryMesh
	entryName
	entryHash
)

// SequenceBits is the number of bits of the sequence number in an order.
const SequenceBits = 24

// MakeOrder combines an epoch and a sequence number.
func MakeOrder(epoch, seq uint64) uint64 { return epoch<<SequenceBits | seq }

// Epoch returns the epoch of the set that the manifest belongs to. It grows with each start of the
// node, and when the number of shards changes.
func (m *Manifest) Epoch() uint64 { return m.Order >> SequenceBits }

// Version returns the version that orders the manifests of a node.
func (m *Manifest) Version() Version { return Version{Order: m.Order, Digest: m.digest} }

// Encoded returns the wire format of the manifest. Callers must not modify it.
func (m *Manifest) Encoded() []byte { return m.raw }

// Head returns the slot and version.
func (m *Manifest) Head() Head { return Head{Slot: m.Slot(), Version: m.Version()} }

// Owner returns the node or directory.
func (m *Manifest) Owner() Owner { return Owner{m.Node, m.Directory} }

// Slot returns the slot of the shard.
func (m *Manifest) Slot() Slot { return m.Owner().Slot(m.Index) }

// Extended reports whether builds without shards and directories must not receive the manifest.
func (m *Manifest) Extended() bool { return m.Index > 0 || m.Directory }

// Owner identifies a node or a directory.
type Owner struct {
	ID        ident.NodeID
	Directory bool
}

// Slot returns the slot of a shard.
func (o Owner) Slot(index int) Slot {
	number := binary.BigEndian.AppendUint64(nil, uint64(index))
	switch {
	case o.Directory:
		return ident.Sum("nearside directory", o.ID[:], number)
	case index > 0:
		return ident.Sum("nearside manifest shard", o.ID[:], number)
	}
	return o.ID.Slot()
}

// Seal sorts the entries, encodes the manifest, and returns it with raw and digest set. With a
// signer it signs the manifest.
func (m Manifest) Seal(s sign.Signer) (*Manifest, error) {
	entries := slices.Clone(m.Entries)
	slices.SortFunc(entries, func(a, b Entry) int { return a.Key.Compare(b.Key) })
	c := wire.AppendBytes(nil, manifestNode, m.Node[:])
	c = wire.AppendText(c, manifestName, m.Name)
	c = wire.AppendFixed(c, manifestOrder, m.Order)
	c = wire.AppendFlag(c, manifestLeaving, m.Leaving)
	c = wire.AppendFlag(c, manifestForgotten, m.Forgotten)
	for _, e := range entries {
		var b []byte
		b = wire.AppendText(b, entryKind, e.Key.Kind)
		b = wire.AppendText(b, entryMesh, e.Key.Mesh)
		b = wire.AppendText(b, entryName, e.Key.Name)
		b = wire.AppendBytes(b, entryHash, e.Hash[:])
		c = wire.AppendBytes(c, manifestEntry, b)
	}
	c = wire.AppendVarint(c, manifestIndex, uint64(m.Index))
	if m.Shards > 1 {
		c = wire.AppendVarint(c, manifestShards, uint64(m.Shards))
	}
	c = wire.AppendFlag(c, manifestDirectory, m.Directory)
	c = wire.AppendText(c, manifestDetail, m.Detail)
	c = appendCluster(c, manifestDomain, manifestTag, m.Cluster)
	c = wire.AppendFlag(c, manifestSigned, m.Signed || s != nil)
	if s != nil {
		var err error
		if m.Signature, err = sign.Make(s, manifestSignature, c); err != nil {
			return nil, err
		}
	}
	out, err := DecodeManifest(envelope(c, m.Signature))
	if err == nil && s != nil {
		out.signer = sign.Claimed(m.Signature)
	}
	return out, err
}

// DecodeManifest decodes a manifest. It retains b, which must not be modified afterwards. Until
// verify succeeds, Signer returns zero.
func DecodeManifest(b []byte) (*Manifest, error) {
	content, signature, err := split("manifest", b, MaxManifest)
	if err != nil {
		return nil, err
	}
	m := &Manifest{raw: b, Signature: signature, digest: ident.Sum("nearside manifest content", content), Shards: 1}
	seen := map[Key]bool{}
	err = wire.Walk("manifest", content, func(n protowire.Number) bool {
		return n == manifestEntry
	}, func(f wire.Field) (err error) {
		var n uint64
		switch f.Num {
		case manifestNode:
			return f.Hash((*[16]byte)(&m.Node))
		case manifestName:
			return f.Text(&m.Name, MaxNodeName)
		case manifestOrder:
			m.Order, err = f.Number()
		case manifestLeaving:
			n, err = f.Number()
			m.Leaving = n != 0
		case manifestForgotten:
			n, err = f.Number()
			m.Forgotten = n != 0
		case manifestEntry:
			var b []byte
			var e Entry
			if b, err = f.Take(MaxManifest); err != nil {
				return err
			}
			if e, err = decodeEntry(b); err != nil {
				return err
			}
			if seen[e.Key] || len(seen) == MaxManifestEntries {
				return fmt.Errorf("%s is listed twice, or there are more than %d entries", e.Key, MaxManifestEntries)
			}
			seen[e.Key] = true
			m.Entries = append(m.Entries, e)
		case manifestIndex:
			return f.Within(&m.Index, 1, MaxShards-1)
		case manifestShards:
			return f.Within(&m.Shards, 2, MaxShards)
		case manifestDirectory:
			n, err = f.Number()
			m.Directory = n != 0
		case manifestDetail:
			return f.Text(&m.Detail, MaxDetail)
		case manifestDomain:
			return f.Tag(manifestTag)
		case manifestCluster:
			return f.Text(&m.Cluster, MaxCluster)
		case manifestSigned:
			n, err = f.Number()
			m.Signed = n != 0
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if m.Index >= m.Shards || m.Shards&(m.Shards-1) != 0 {
		return nil, fmt.Errorf("manifest is shard %d of %d; the number must be a power of two", m.Index, m.Shards)
	}
	if m.Forgotten && m.Shards > 1 {
		return nil, errors.New("manifest of a forgotten node has shards")
	}
	if m.Order == 0 || m.Node == (NodeID{}) {
		return nil, errors.New("manifest has no node or no epoch")
	}
	if m.Forgotten && len(m.Entries) > 0 {
		return nil, errors.New("manifest of a forgotten node has entries")
	}
	return m, nil
}

func decodeEntry(b []byte) (e Entry, err error) {
	err = wire.Walk("entry", b, wire.Never, func(f wire.Field) error {
		switch f.Num {
		case entryKind:
			return f.Text(&e.Key.Kind, ident.MaxKeyPart)
		case entryMesh:
			return f.Text(&e.Key.Mesh, ident.MaxKeyPart)
		case entryName:
			return f.Text(&e.Key.Name, ident.MaxKeyPart)
		case entryHash:
			h, err := f.Take(len(e.Hash))
			if err == nil && len(h) != len(e.Hash) {
				err = fmt.Errorf("has %d bytes, %d are required", len(h), len(e.Hash))
			}
			copy(e.Hash[:], h)
			return err
		}
		return nil
	})
	if err == nil {
		err = e.Key.Validate()
	}
	return e, err
}
