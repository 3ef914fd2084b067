package record

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/nearside-mesh/nearside/gossip/engine/ident"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

var errUnsigned = errors.New("it has no signature")

// Verify checks the signature of a record. Signer then returns its key. A record without signature
// is valid unless it names a signing key. It must not be called concurrently with other methods.
func (r *Record) Verify() error {
	id, err := verify(recordSignature, r.raw, MaxRecord)
	switch {
	case err != nil:
		return err
	case r.SigningKey != sign.ID{} && id == sign.ID{}:
		return errUnsigned
	case r.SigningKey != sign.ID{} && id != r.SigningKey:
		return fmt.Errorf("it must be signed by key %s, not by %s", r.SigningKey, id)
	}
	r.signer = id
	return nil
}

// Signer returns the key whose signature was verified, or zero if the record is not signed.
func (r *Record) Signer() sign.ID { return r.signer }

// Signer returns the key whose signature was verified, or zero if the manifest is not signed.
func (m *Manifest) Signer() sign.ID { return m.signer }

// LoadRecord decodes a record that this node has verified and stored. It retains b, which must not
// be modified afterwards.
func LoadRecord(b []byte) (*Record, error) {
	r, err := DecodeRecord(b)
	if err == nil {
		r.signer = sign.Claimed(r.Signature)
	}
	return r, err
}

// LoadManifest decodes a manifest that this node has verified and stored.
func LoadManifest(b []byte) (*Manifest, error) {
	m, err := DecodeManifest(b)
	if err == nil {
		m.signer = sign.Claimed(m.Signature)
	}
	return m, err
}

// Verify checks the signature of a manifest. That of a node must be by the key of the node.
func (m *Manifest) Verify() error {
	id, err := verify(manifestSignature, m.raw, MaxManifest)
	switch {
	case err != nil:
		return err
	case m.Signed && id == sign.ID{}:
		return errUnsigned
	case !m.Signed && id != sign.ID{}:
		return errors.New("it has a signature that its content does not require")
	case m.Signed && !m.Directory && !m.Forgotten && ident.NodeID(id) != m.Node:
		return fmt.Errorf("it must be signed by the key of the node %s, not by key %s", m.Node, id)
	}
	m.signer = id
	return nil
}

// verify returns the key that signed an encoded record or manifest, or zero if it has no signature.
func verify(domain string, raw []byte, limit int) (sign.ID, error) {
	content, signature, err := split("signed entry", raw, limit)
	if err != nil || len(signature) == 0 {
		return sign.ID{}, err
	}
	pub, err := sign.Verify(domain, content, signature)
	if err != nil {
		return sign.ID{}, err
	}
	return sign.Fingerprint(pub), nil
}

// Clone returns a copy that does not retain the message that contains the record.
func (r *Record) Clone() *Record {
	c := *r
	c.raw = bytes.Clone(r.raw)
	c.Body, c.Signature = r.sliceOf(c.raw, r.Body), r.sliceOf(c.raw, r.Signature)
	return &c
}

// sliceOf returns the slice of raw, a copy of r.raw, at the same offset as field in r.raw. Slices
// of r.raw extend to the end of its array, so the capacities yield the offset.
func (r *Record) sliceOf(raw, field []byte) []byte {
	if field == nil {
		return nil
	}
	at := cap(r.raw) - cap(field)
	return raw[at : at+len(field)]
}
