package trusttest_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// The encodings below follow the wire format, and use none of its code: the product refuses to
// encode much of what a hostile member sends.

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func appendFixed(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), v)
}

func appendNumber(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendFlag(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return appendNumber(b, num, 1)
}

// at returns the HLC of a time.
func at(t time.Time) uint64 { return uint64(t.UnixMilli()) << 16 }

// inEra moves an HLC to an era.
func inEra(hlc uint64, era uint64) uint64 { return hlc&(1<<58-1) | era<<58 }

// record is a version that a hostile member crafts.
type record struct {
	key            engine.Key
	hlc            uint64
	writer         engine.NodeID
	lineage        []engine.Ancestor
	deleted        bool
	media, body    string
	author, origin string
	cluster        string
	by             ed25519.PrivateKey // nil: the record is not signed
	claims         ed25519.PrivateKey // the key that it names as its signer, if not by
}

// content returns the bytes of the record that are signed.
func (r record) content() (c []byte) {
	c = appendBytes(c, 1, []byte(r.key.Kind))
	c = appendBytes(c, 2, []byte(r.key.Mesh))
	c = appendBytes(c, 3, []byte(r.key.Name))
	c = appendFixed(c, 4, r.hlc)
	c = appendBytes(c, 5, r.writer[:8])
	var packed []byte
	for _, a := range r.lineage {
		packed = binary.BigEndian.AppendUint64(packed, uint64(a.HLC))
		packed = binary.BigEndian.AppendUint64(packed, a.Short)
	}
	c = appendBytes(c, 6, packed)
	c = appendFlag(c, 7, r.deleted)
	c = appendBytes(c, 8, []byte(r.media))
	c = appendBytes(c, 9, []byte(r.body))
	c = appendBytes(c, 10, []byte(r.author))
	c = appendBytes(c, 11, []byte(r.origin))
	if r.cluster != "" {
		c = appendBytes(c, 12, []byte("nearside record"))
		c = appendBytes(c, 13, []byte(r.cluster))
	}
	if named := either(r.claims, r.by); named != nil {
		id := idOf(named.Public().(ed25519.PublicKey))
		c = appendBytes(c, 14, id[:])
	}
	return c
}

// encode returns the signed record.
func (r record) encode() []byte {
	c := r.content()
	return envelope(c, signature(r.by, "nearside record signature", c))
}

// signature returns the signature of content in a domain, or nothing without a key.
func signature(key ed25519.PrivateKey, domain string, content []byte) []byte {
	if key == nil {
		return nil
	}
	m := append(append([]byte(domain), 0), content...)
	return append(append([]byte{}, key.Public().(ed25519.PublicKey)...), ed25519.Sign(key, m)...)
}

// manifest lists the items of a node that a hostile member crafts.
type manifest struct {
	node               engine.NodeID
	name               string
	epoch, seq         uint64
	leaving, forgotten bool
	items              []engine.OwnItem
	directory          bool
	detail             string
	cluster            string
	by                 ed25519.PrivateKey // nil: the manifest is not signed
}

// content returns the bytes of the manifest that are signed.
func (m manifest) content() (c []byte) {
	c = appendBytes(c, 1, m.node[:])
	c = appendBytes(c, 2, []byte(m.name))
	c = appendFixed(c, 3, m.epoch<<24|m.seq)
	c = appendFlag(c, 4, m.leaving)
	c = appendFlag(c, 5, m.forgotten)
	items := slices.SortedFunc(slices.Values(m.items), func(a, b engine.OwnItem) int {
		return slices.Compare([]string{a.Key.Kind, a.Key.Mesh, a.Key.Name}, []string{b.Key.Kind, b.Key.Mesh, b.Key.Name})
	})
	for _, i := range items {
		hash := sha256.Sum256(i.Body)
		var e []byte
		e = appendBytes(e, 1, []byte(i.Key.Kind))
		e = appendBytes(e, 2, []byte(i.Key.Mesh))
		e = appendBytes(e, 3, []byte(i.Key.Name))
		e = appendBytes(e, 4, hash[:])
		c = appendBytes(c, 6, e)
	}
	c = appendFlag(c, 9, m.directory)
	c = appendBytes(c, 10, []byte(m.detail))
	if m.cluster != "" {
		c = appendBytes(c, 11, []byte("nearside manifest"))
		c = appendBytes(c, 12, []byte(m.cluster))
	}
	return appendFlag(c, 13, m.by != nil)
}

// encode returns the signed manifest.
func (m manifest) encode() []byte {
	c := m.content()
	return envelope(c, signature(m.by, "nearside manifest signature", c))
}

// message returns a message with the manifest and its bodies.
func (m manifest) message() (out message) {
	for _, i := range m.items {
		out.bodies = append(out.bodies, i.Body)
	}
	if m.directory {
		out.shards = [][]byte{m.encode()}
	} else {
		out.manifests = [][]byte{m.encode()}
	}
	return out
}

func either(a, b ed25519.PrivateKey) ed25519.PrivateKey {
	if a != nil {
		return a
	}
	return b
}

// envelope adds a signature, which may be nil, to content.
func envelope(content, signature []byte) []byte {
	return appendBytes(appendBytes(nil, 1, content), 2, signature)
}

// message is a message of the pool.
type message struct {
	from      string
	want      []engine.Slot
	request   uint64
	records   [][]byte
	manifests [][]byte
	bodies    [][]byte
	shards    [][]byte // manifests of directories
}

func (m message) encode() []byte {
	b := appendBytes([]byte{1}, 1, []byte(m.from))
	b = appendFixed(b, 2, uint64(time.Now().UnixMilli()))
	var packed []byte
	for _, s := range m.want {
		packed = append(packed, s[:]...)
	}
	b = appendNumber(appendBytes(b, 4, packed), 6, m.request)
	for _, r := range m.records {
		b = appendBytes(b, 12, r)
	}
	for _, x := range m.manifests {
		b = appendBytes(b, 13, x)
	}
	for _, x := range m.bodies {
		b = appendBytes(b, 14, x)
	}
	for _, x := range m.shards {
		b = appendBytes(b, 15, x)
	}
	return b
}

// reply is the part of a message that a hostile member reads.
type reply struct {
	number    uint64
	last      bool
	records   [][]byte
	manifests [][]byte
}

func decodeReply(b []byte) (r reply) {
	for b = b[1:]; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return r
		}
		b = b[n:]
		value, size := uint64(0), protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return r
		}
		var field []byte
		switch typ {
		case protowire.BytesType:
			field, _ = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			value, _ = protowire.ConsumeVarint(b)
		}
		switch b = b[size:]; num {
		case 7:
			r.number = value
		case 8:
			r.last = value != 0
		case 12:
			r.records = append(r.records, slices.Clone(field))
		case 13, 15:
			r.manifests = append(r.manifests, slices.Clone(field))
		}
	}
	return r
}

// TestWire checks that the product reads what this package encodes, so an attack does not fail
// because of its encoding.
func TestWire(t *testing.T) {
	id := engine.NodeID{1, 2, 3}
	now := time.Now().Truncate(time.Millisecond)
	k := engine.Key{Kind: "MeshTimeout", Mesh: "default", Name: "slow"}
	key, signer := newKey()
	r, err := engine.DecodeRecord(record{key: k, hlc: at(now), writer: id, body: "{}", author: "root",
		origin: "a", cluster: "default", lineage: []engine.Ancestor{{HLC: 5, Short: 6}}, by: key}.encode())
	if err != nil || r.Key != k || !r.HLC.Time().Equal(now) || string(r.Body) != "{}" || r.Author != "root" ||
		r.Cluster != "default" || r.Writer != engine.Writer(id[:8]) || len(r.Lineage) != 1 {
		t.Errorf("record %+v, %v", r, err)
	}
	if err := r.Verify(); err != nil || engine.NodeID(r.Signer()) != signer {
		t.Errorf("signer %s, %v", r.Signer(), err)
	}
	m, err := engine.DecodeManifest(manifest{node: id, name: "a", epoch: 7, seq: 1, cluster: "default", by: key,
		items: []engine.OwnItem{{Key: k, Body: []byte("{}")}}}.encode())
	if err != nil || m.Node != id || !m.Signed || m.Epoch() != 7 || len(m.Entries) != 1 ||
		m.Entries[0].Hash != engine.HashBody([]byte("{}")) {
		t.Errorf("manifest %+v, %v", m, err)
	}
}

// plainHash returns the first 128 bits of a hash of texts.
func plainHash(domain string, content []byte) (out [16]byte) {
	sum := sha256.Sum256(append([]byte(domain), content...))
	copy(out[:], sum[:])
	return out
}
