package engine

import (
	"errors"
	"fmt"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Policy decides which records and manifests may be in force. The engine calls it in Step and
// Prepare, with entries whose signatures are valid or absent. Answers may change only before a
// Reconsider event.
type Policy interface {
	// Record returns "", or the reason why a record may not be in force.
	Record(*Record) string
	// Manifest does so for a manifest of another node, or of a directory. A reason that starts with
	// "name: " is listed under ReasonName, all others under ReasonTrust.
	Manifest(*Manifest) string
}

// Reconsider means that the answers of the policy may have changed. The engine requests the
// versions that it refused before.
type Reconsider struct{}

func (Reconsider) event() {}

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

// verify checks the signature of a manifest. That of a node must be by the key of the node.
func (m *Manifest) verify() error {
	id, err := verify(manifestSignature, m.raw, MaxManifest)
	switch {
	case err != nil:
		return err
	case m.Signed != (id != sign.ID{}):
		return errUnsigned
	case m.Signed && !m.Directory && !m.Forgotten && NodeID(id) != m.Node:
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

// objection returns why a record may not be in force, or "".
func (e *Engine) objection(r *Record) string {
	if e.cfg.Policy == nil {
		return ""
	}
	return e.cfg.Policy.Record(r)
}

// distrust records a version that the policy or its signature excludes. The detail is the reason.
func (e *Engine) distrust(h Head, r Refusal, why string) { e.refuse(h, refusal{Refusal: r}, why) }

// reconsider requests the versions that the policy excluded before.
func (e *Engine) reconsider() {
	for _, r := range e.refused {
		if r.Reason == ReasonTrust || r.Reason == ReasonName {
			r.until = e.now
		}
	}
	for _, p := range e.peers {
		p.tries, p.roots = 0, [2]Digest{}
	}
	e.joinTries, e.joinAt = joinTries, e.now
}
