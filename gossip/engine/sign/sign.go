// Package sign makes and verifies ed25519 signatures of pool data. A signature contains the public
// key of its signer, and a key is named by its fingerprint.
package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// ID is the fingerprint of a public key. The zero value means no key.
type ID [16]byte

// String returns the fingerprint as 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID parses the output of ID.String.
func ParseID(s string) (ID, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(ID{}) {
		return ID{}, fmt.Errorf("key id %q: 32 hexadecimal digits are required", s)
	}
	return ID(b), nil
}

// Fingerprint returns the ID of a public key.
func Fingerprint(pub ed25519.PublicKey) ID {
	h := sha256.Sum256(append([]byte("nearside key"), pub...))
	return ID(h[:len(ID{})])
}

// Signer signs with one key, which may be in another process. Public must return the same key in
// every call.
type Signer interface {
	Public() ed25519.PublicKey
	// Sign returns the ed25519 signature of a message.
	Sign(message []byte) ([]byte, error)
}

// Key returns a Signer with a private key in memory. It is safe for concurrent use.
func Key(priv ed25519.PrivateKey) Signer { return key(priv) }

type key ed25519.PrivateKey

func (k key) Public() ed25519.PublicKey { return ed25519.PrivateKey(k).Public().(ed25519.PublicKey) }

func (k key) Sign(message []byte) ([]byte, error) {
	return ed25519.Sign(ed25519.PrivateKey(k), message), nil
}

// Size is the length of a signature in bytes: the public key and the ed25519 signature.
const Size = ed25519.PublicKeySize + ed25519.SignatureSize

// Make returns the signature of a content. A signature is valid only for its domain, which must not
// contain a zero byte.
func Make(s Signer, domain string, content []byte) ([]byte, error) {
	pub := s.Public()
	if len(pub) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("public key has %d bytes, %d are required", len(pub), ed25519.PublicKeySize)
	}
	b, err := s.Sign(message(domain, content))
	if err != nil {
		return nil, fmt.Errorf("signature by key %s: %w", Fingerprint(pub), err)
	}
	if len(b) != ed25519.SignatureSize {
		return nil, fmt.Errorf("signature by key %s has %d bytes, %d are required", Fingerprint(pub), len(b),
			ed25519.SignatureSize)
	}
	return slices.Concat(pub, b), nil
}

// Errors of Verify.
var (
	ErrSize    = errors.New("signature has another length than 96 bytes")
	ErrWeak    = errors.New("signature is by a weak key, whose signatures fit several contents")
	ErrInvalid = errors.New("signature does not fit the content")
)

// Verify returns the key that signed a content in a domain, or an error if the signature is not
// valid.
func Verify(domain string, content, signature []byte) (ed25519.PublicKey, error) {
	if len(signature) != Size {
		return nil, ErrSize
	}
	pub := ed25519.PublicKey(bytes.Clone(signature[:ed25519.PublicKeySize]))
	if weak(pub) {
		return nil, ErrWeak
	}
	if !ed25519.Verify(pub, message(domain, content), signature[ed25519.PublicKeySize:]) {
		return nil, ErrInvalid
	}
	return pub, nil
}

// Claimed returns the ID of the key in a signature without verifying the signature, or zero if its
// length is wrong. Use it only for signatures that were verified before.
func Claimed(signature []byte) ID {
	if len(signature) != Size {
		return ID{}
	}
	return Fingerprint(signature[:ed25519.PublicKeySize])
}

func message(domain string, content []byte) []byte {
	b := make([]byte, 0, len(domain)+1+len(content))
	return append(append(append(b, domain...), 0), content...)
}

// weak reports whether a key is one of the points of small order. With such a key, one signature
// can be valid for many contents.
func weak(pub ed25519.PublicKey) bool {
	y := bytes.Clone(pub)
	y[31] &= 0x7f // the sign of x
	return slices.Contains(smallOrder, hex.EncodeToString(y))
}

// smallOrder lists the y coordinates of the points of small order in all their encodings.
var smallOrder = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}
