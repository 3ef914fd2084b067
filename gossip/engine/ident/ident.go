// Package ident holds the identifiers of replicated entries: keys, nodes, versions, and their
// hashes.
package ident

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Key identifies a record. The engine does not interpret its fields.
type Key struct {
	Kind string `json:"kind"`
	Mesh string `json:"mesh,omitempty"`
	Name string `json:"name"`
}

// String returns "MeshTimeout default/web".
func (k Key) String() string {
	if k.Mesh == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Mesh + "/" + k.Name
}

// Compare orders keys by kind, mesh, and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Mesh, o.Mesh), cmp.Compare(k.Name, o.Name))
}

// MaxKeyPart limits each field of a key, in bytes.
const MaxKeyPart = 253

// Validate reports a field that is missing, too long, or not printable.
func (k Key) Validate() error {
	if k.Kind == "" || k.Name == "" {
		return fmt.Errorf("key %q: kind and name are required", k.String())
	}
	for _, f := range []struct{ field, value string }{{"kind", k.Kind}, {"mesh", k.Mesh}, {"name", k.Name}} {
		if len(f.value) > MaxKeyPart {
			return fmt.Errorf("key: %s has %d bytes, at most %d are allowed", f.field, len(f.value), MaxKeyPart)
		}
		if strings.IndexFunc(f.value, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }) >= 0 {
			return fmt.Errorf("key: %s %q holds control characters or is not UTF-8", f.field, f.value)
		}
	}
	return nil
}

// Hash is the first 128 bits of a SHA-256 sum.
type Hash [16]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Short returns the prefix of a hash that identifies a version in a lineage.
func (h Hash) Short() uint64 { return binary.BigEndian.Uint64(h[:8]) }

// Sum hashes length-prefixed parts, with a domain for separation.
func Sum(domain string, parts ...[]byte) Hash {
	d := sha256.New()
	d.Write([]byte(domain))
	for _, p := range parts {
		d.Write(binary.AppendUvarint(nil, uint64(len(p))))
		d.Write(p)
	}
	return Hash(d.Sum(nil)[:16])
}

// NodeID identifies a node permanently.
type NodeID [16]byte

// String returns the id in hexadecimal.
func (n NodeID) String() string { return hex.EncodeToString(n[:]) }

// ParseNodeID parses the output of NodeID.String.
func ParseNodeID(s string) (NodeID, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(NodeID{}) {
		return NodeID{}, fmt.Errorf("node id %q: 32 hexadecimal digits are required", s)
	}
	return NodeID(b), nil
}

// Slot is the position of an entry in the tree of digests, and its name in requests. It is a hash
// of its class and key.
type Slot = Hash

// Hash returns the hash that selects the shard of a key.
func (k Key) Hash() uint64 {
	return Sum("nearside shard", []byte(k.Kind), []byte(k.Mesh), []byte(k.Name)).Short()
}

// Slot returns the position of a record in the tree of digests.
func (k Key) Slot() Slot {
	return Sum("nearside record", []byte(k.Kind), []byte(k.Mesh), []byte(k.Name))
}

// Slot returns the position of the first manifest of a node in the tree of digests.
func (n NodeID) Slot() Slot { return Sum("nearside manifest", n[:]) }

// Version orders the versions of an entry. The greater version wins on every node.
type Version struct {
	// Order is the HLC of a record, or the epoch and sequence number of a manifest.
	Order  uint64
	Digest Hash // of the content
}

// Less reports whether o is greater than v.
func (v Version) Less(o Version) bool {
	if v.Order != o.Order {
		return v.Order < o.Order
	}
	return string(v.Digest[:]) < string(o.Digest[:])
}

// Head identifies a version of an entry in announcements and digests.
type Head struct {
	Slot Slot
	Version
}

// Position returns the slot.
func (h Head) Position() [16]byte { return h.Slot }

// Term returns the term of the head in sums. It covers the content of the version.
func (h Head) Term() [16]byte { return Sum("nearside head", h.Append(nil)) }

// HeadSize is the length of an encoded Head in bytes.
const HeadSize = 16 + 8 + 16

// Append appends the encoding of a head.
func (h Head) Append(b []byte) []byte {
	b = append(b, h.Slot[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Order)
	return append(b, h.Digest[:]...)
}

var errHeads = errors.New("heads are truncated")

// ParseHeads decodes concatenated heads.
func ParseHeads(b []byte) ([]Head, error) {
	if len(b)%HeadSize != 0 {
		return nil, errHeads
	}
	out := make([]Head, 0, len(b)/HeadSize)
	for ; len(b) > 0; b = b[HeadSize:] {
		out = append(out, Head{Hash(b[:16]), Version{binary.BigEndian.Uint64(b[16:24]), Hash(b[24:40])}})
	}
	return out, nil
}

// ParseHashes decodes concatenated hashes.
func ParseHashes(b []byte) ([]Hash, error) {
	if len(b)%16 != 0 {
		return nil, errors.New("hashes are truncated")
	}
	out := make([]Hash, 0, len(b)/16)
	for ; len(b) > 0; b = b[16:] {
		out = append(out, Hash(b[:16]))
	}
	return out, nil
}

// ParseMemberName is the reverse of the member name of a node and an epoch.
func ParseMemberName(name string) (id NodeID, epoch uint64, err error) {
	text, number, _ := strings.Cut(name, "-")
	if id, err = ParseNodeID(text); err != nil {
		return id, 0, err
	}
	epoch, err = strconv.ParseUint(number, 16, 64)
	return id, epoch, err
}
