package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine/ident"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

// Limits of a record.
const (
	MaxRecord    = 64 << 10 // bytes of an encoded record, including the signature
	MaxLineage   = 8
	maxMediaType = 127
	maxAuthor    = 253
	MaxCluster   = 64
	maxSignature = 4 << 10
)

// Writer identifies the node that made a change: the first 8 bytes of its ID.
type Writer [8]byte

// Ancestor identifies a version that another version was derived from.
type Ancestor struct {
	HLC   HLC
	Short uint64 // Hash.Short of the digest
}

// Record is one version of a record. It is immutable; callers must not modify Body or Signature.
type Record struct {
	Key    Key
	HLC    HLC
	Writer Writer
	// Lineage lists up to MaxLineage ancestors of this version, newest first.
	Lineage   []Ancestor
	Deleted   bool   // a tombstone
	Author    string // who made the change, for display; may be empty
	Origin    string // display name of the node that made the change
	MediaType string // of the body
	Body      []byte
	Cluster   string // cluster of the node that made the change; empty from earlier builds
	// SigningKey is the key that must have signed the version, or zero. It is part of the content, so
	// a version has one signer, and its signature cannot be removed.
	SigningKey sign.ID
	Signature  []byte // of the content; see package sign. Not part of the version

	raw    []byte  // encoded envelope; preserves unknown fields
	digest Hash    // of the content
	signer sign.ID // verified
}

// Fields of the envelope.
const (
	envelopeContent   = 1
	envelopeSignature = 2
)

// Fields of a record's content.
const (
	recordKind = iota + 1
	recordMesh
	recordName
	recordHLC
	recordWriter
	recordLineage
	recordDeleted
	recordMediaType
	recordBody
	recordAuthor
	recordOrigin
	recordDomain
	recordCluster
	recordSigningKey
)

// The domain tags separate the contents of records and manifests, so a signature of one is never
// valid for the other.
const (
	recordTag   = "nearside record"
	manifestTag = "nearside manifest"

	recordSignature   = "nearside record signature" // domain of package sign
	manifestSignature = "nearside manifest signature"
)

// Version returns the version that orders the records of a key.
func (r *Record) Version() Version { return Version{Order: uint64(r.HLC), Digest: r.digest} }

// ID returns a unique name of the version.
func (r *Record) ID() string { return fmt.Sprintf("%016x-%x", uint64(r.HLC), r.digest[:4]) }

// Encoded returns the wire format of the record. Callers must not modify it.
func (r *Record) Encoded() []byte { return r.raw }

// Head returns the key and version.
func (r *Record) Head() Head { return Head{Slot: r.Key.Slot(), Version: r.Version()} }

// Seal encodes a record and returns it with raw and digest set. With a signer it signs the record.
func (r Record) Seal(s sign.Signer) (*Record, error) {
	if err := r.Key.Validate(); err != nil {
		return nil, err
	}
	if s != nil {
		r.SigningKey = sign.Fingerprint(s.Public())
	}
	var c []byte
	c = wire.AppendText(c, recordKind, r.Key.Kind)
	c = wire.AppendText(c, recordMesh, r.Key.Mesh)
	c = wire.AppendText(c, recordName, r.Key.Name)
	c = wire.AppendFixed(c, recordHLC, uint64(r.HLC))
	c = wire.AppendBytes(c, recordWriter, r.Writer[:])
	c = wire.AppendBytes(c, recordLineage, PackLineage(r.Lineage))
	c = wire.AppendFlag(c, recordDeleted, r.Deleted)
	c = wire.AppendText(c, recordMediaType, r.MediaType)
	c = wire.AppendBytes(c, recordBody, r.Body)
	c = wire.AppendText(c, recordAuthor, r.Author)
	c = wire.AppendText(c, recordOrigin, r.Origin)
	c = appendCluster(c, recordDomain, recordTag, r.Cluster)
	if r.SigningKey != (sign.ID{}) {
		c = wire.AppendBytes(c, recordSigningKey, r.SigningKey[:])
	}
	if s != nil {
		var err error
		if r.Signature, err = sign.Make(s, recordSignature, c); err != nil {
			return nil, fmt.Errorf("%s cannot be signed: %w", r.Key, err)
		}
	}
	out, err := DecodeRecord(envelope(c, r.Signature))
	if err == nil && s != nil {
		out.signer = r.SigningKey
	}
	return out, err
}

func envelope(content, signature []byte) []byte {
	return wire.AppendBytes(wire.AppendBytes(nil, envelopeContent, content), envelopeSignature, signature)
}

// appendCluster appends a domain tag and the cluster, in two fields. Without a cluster it appends
// nothing, like earlier builds.
func appendCluster(b []byte, num protowire.Number, tag, cluster string) []byte {
	if cluster == "" {
		return b
	}
	return wire.AppendText(wire.AppendText(b, num, tag), num+1, cluster)
}

// Put is a change.
type Put struct {
	Key       Key
	Delete    bool
	MediaType string
	Body      []byte
	Author    string // for display; may be empty
	// Version is the version, if another program has made it. Then only Key is used besides.
	Version *Record
}

// Origin identifies the node that makes a change, and the key that signs it.
type Origin struct {
	Node    NodeID
	Name    string      // display name
	Cluster string      // up to 64 bytes; empty: the change is accepted in every cluster
	Signer  sign.Signer // key of the node or of an operator; nil: the change is not signed
	Era     uint8       // of the pool; a parent of a later era prevails
}

// Successor returns the version that a change creates at time now, after the version parent. parent
// is nil for an unknown key. A version in the change is returned unchanged.
func Successor(now time.Time, parent *Record, p Put, of Origin) (*Record, error) {
	if p.Version != nil {
		return p.Version, nil
	}
	h, l, err := Following(now, of.Era, parent)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Key, err)
	}
	return p.Seal(h, l, of)
}

// Following returns the date and the lineage of the version after parent, which may be nil, in an
// era.
func Following(now time.Time, era uint8, parent *Record) (h HLC, l []Ancestor, err error) {
	if parent == nil {
		h, err = Next(now, era, 0)
		return h, nil, err
	}
	h, err = Next(now, era, parent.HLC)
	return h, parent.line(), err
}

// line returns the lineage of a successor.
func (r *Record) line() []Ancestor {
	l := append([]Ancestor{r.ancestor()}, r.Lineage...)
	return l[:min(len(l), MaxLineage)]
}

// Seal returns the version of a change with a date and a lineage.
func (p Put) Seal(h HLC, l []Ancestor, of Origin) (*Record, error) {
	return Record{Key: p.Key, HLC: h, Lineage: l, Writer: Writer(of.Node[:8]), Deleted: p.Delete, MediaType: p.MediaType,
		Body: p.Body, Author: p.Author, Origin: of.Name, Cluster: of.Cluster}.Seal(of.Signer)
}

// After seals a record as the successor of a version, which may be nil.
func (r Record) After(parent *Record, s sign.Signer) (*Record, error) {
	if parent != nil {
		r.Lineage = parent.line()
	}
	return r.Seal(s)
}

// split decodes an envelope.
func split(what string, b []byte, limit int) (content, signature []byte, err error) {
	if len(b) > limit {
		return nil, nil, fmt.Errorf("%s has %d bytes, at most %d are allowed", what, len(b), limit)
	}
	err = wire.Walk(what, b, wire.Never, func(f wire.Field) (err error) {
		switch f.Num {
		case envelopeContent:
			content, err = f.Take(limit)
		case envelopeSignature:
			signature, err = f.Take(maxSignature)
		}
		return err
	})
	if err == nil && content == nil {
		err = fmt.Errorf("%s has no content", what)
	}
	return content, signature, err
}

// DecodeRecord decodes a record. It retains b, which must not be modified afterwards. Until Verify
// succeeds, Signer returns zero.
func DecodeRecord(b []byte) (*Record, error) {
	content, signature, err := split("record", b, MaxRecord)
	if err != nil {
		return nil, err
	}
	r := &Record{raw: b, Signature: signature, digest: recordDigest(content)}
	err = wire.Walk("record", content, wire.Never, func(f wire.Field) (err error) {
		var n uint64
		switch f.Num {
		case recordKind:
			return f.Text(&r.Key.Kind, ident.MaxKeyPart)
		case recordMesh:
			return f.Text(&r.Key.Mesh, ident.MaxKeyPart)
		case recordName:
			return f.Text(&r.Key.Name, ident.MaxKeyPart)
		case recordHLC:
			n, err = f.Number()
			r.HLC = HLC(n)
		case recordWriter:
			return readWriter(f, &r.Writer)
		case recordLineage:
			r.Lineage, err = readLineage(f)
		case recordDeleted:
			n, err = f.Number()
			r.Deleted = n != 0
		case recordMediaType:
			return f.Text(&r.MediaType, maxMediaType)
		case recordBody:
			r.Body, err = f.Take(MaxRecord)
		case recordAuthor:
			return f.Text(&r.Author, maxAuthor)
		case recordOrigin:
			return f.Text(&r.Origin, MaxNodeName)
		case recordDomain:
			return f.Tag(recordTag)
		case recordCluster:
			return f.Text(&r.Cluster, MaxCluster)
		case recordSigningKey:
			return f.Hash((*[16]byte)(&r.SigningKey))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if r.HLC == 0 {
		return nil, errors.New("record has no HLC")
	}
	if r.Deleted && len(r.Body) > 0 {
		return nil, errors.New("record is a tombstone and has a body")
	}
	return r, r.Key.Validate()
}

// Matches returns an error if a stored value does not have the digest of the record. Without a
// value it checks the encoding of the record.
func (r *Record) Matches(raw []byte) error {
	if raw == nil {
		raw = r.raw
	}
	content, _, err := split("record", raw, MaxRecord)
	if err == nil && recordDigest(content) != r.digest {
		err = fmt.Errorf("the stored value of %s has another digest than its record", r.Key)
	}
	return err
}

func recordDigest(content []byte) Hash { return ident.Sum("nearside record content", content) }

func readWriter(f wire.Field, to *Writer) error {
	b, err := f.Take(8)
	if err == nil && len(b) != 8 {
		err = fmt.Errorf("has %d bytes, 8 are required", len(b))
	}
	if err == nil {
		*to = Writer(b)
	}
	return err
}

func (r *Record) ancestor() Ancestor { return Ancestor{r.HLC, r.digest.Short()} }

// Knows reports whether r was derived from o.
func (r *Record) Knows(o *Record) bool { return slices.Contains(r.Lineage, o.ancestor()) }

// reach returns the HLC of the oldest version in a full lineage, or 0 if the lineage is complete.
func (r *Record) reach() HLC {
	if len(r.Lineage) < MaxLineage {
		return 0
	}
	return r.Lineage[MaxLineage-1].HLC
}

const ancestorSize = 8 + 8

// PackLineage returns the encoded form of a lineage.
func PackLineage(l []Ancestor) []byte {
	var b []byte
	for _, a := range l {
		b = binary.BigEndian.AppendUint64(b, uint64(a.HLC))
		b = binary.BigEndian.AppendUint64(b, a.Short)
	}
	return b
}

func readLineage(f wire.Field) ([]Ancestor, error) {
	b, err := f.Take(ancestorSize * MaxLineage)
	if err != nil {
		return nil, err
	}
	return ParseLineage(b)
}

// ParseLineage returns a lineage.
func ParseLineage(b []byte) ([]Ancestor, error) {
	if len(b)%ancestorSize != 0 || len(b) > ancestorSize*MaxLineage {
		return nil, errors.New("is truncated")
	}
	var out []Ancestor
	for ; len(b) > 0; b = b[ancestorSize:] {
		out = append(out, Ancestor{HLC(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])})
	}
	return out, nil
}
