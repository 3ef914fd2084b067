package trust

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// PublicKey is an ed25519 key. Its text has the format of OpenSSH, "ssh-ed25519 AAAA..."; a bare
// key in base64 is accepted too.
type PublicKey ed25519.PublicKey

const sshType = "ssh-ed25519"

var errKey = errors.New("is not an ed25519 public key; write it like ssh-ed25519 AAAAC3..., as nearside keys " +
	"generate and ssh-keygen print it")

// ParsePublicKey parses the text of a key. It ignores a comment after it.
func ParsePublicKey(text string) (PublicKey, error) {
	fields := strings.Fields(text)
	switch {
	case len(fields) == 1:
		b, err := base64.StdEncoding.DecodeString(fields[0])
		if err == nil && len(b) == ed25519.PublicKeySize {
			return b, nil
		}
	case len(fields) > 1 && fields[0] == sshType:
		b, err := base64.StdEncoding.DecodeString(fields[1])
		if head := sshHead(); err == nil && bytes.HasPrefix(b, head) && len(b) == len(head)+ed25519.PublicKeySize {
			return b[len(head):], nil
		}
	}
	return nil, errKey
}

// sshHead returns the bytes before the key in the wire format of OpenSSH.
func sshHead() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(sshType)))
	b = append(b, sshType...)
	return binary.BigEndian.AppendUint32(b, ed25519.PublicKeySize)
}

// String returns the key in the format of OpenSSH.
func (k PublicKey) String() string {
	return sshType + " " + base64.StdEncoding.EncodeToString(append(sshHead(), k...))
}

// ID returns the fingerprint of the key.
func (k PublicKey) ID() ID { return ID(sign.Fingerprint(ed25519.PublicKey(k))) }

// MarshalText implements [encoding.TextMarshaler].
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *PublicKey) UnmarshalText(b []byte) (err error) {
	*k, err = ParsePublicKey(string(b))
	return err
}

// signatureDomain separates signatures of trust files from all others.
const signatureDomain = "nearside trust file signature"

// Lines around the signatures of an envelope.
const (
	beginLine = "-----BEGIN NEARSIDE TRUST SIGNATURES-----"
	endLine   = "-----END NEARSIDE TRUST SIGNATURES-----"
)

// maxSignatures limits the signatures of an envelope.
const maxSignatures = 64

// Envelope is a trust file with its signatures. Its text is the document as its author wrote it,
// and then a block of lines with one signature each.
type Envelope struct {
	Document   []byte
	Signatures [][]byte // public key and signature, as [sign.Make] returns them
}

// ParseEnvelope splits the text of a trust file. A document without a block of signatures is an
// unsigned one. It retains text.
func ParseEnvelope(text []byte) (*Envelope, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("the trust file has %d bytes, at most %d are allowed", len(text), MaxFile)
	}
	at := bytes.Index(text, []byte(beginLine+"\n"))
	if at < 0 {
		return &Envelope{Document: text}, nil
	}
	if at > 0 && text[at-1] != '\n' {
		return nil, errors.New("the signatures of the trust file do not begin at the start of a line; restore the file")
	}
	e := &Envelope{Document: text[:at:at]}
	lines := strings.Split(string(text[at+len(beginLine)+1:]), "\n")
	for i, line := range lines {
		if line == endLine {
			if strings.TrimSpace(strings.Join(lines[i+1:], "")) != "" {
				return nil, errors.New("text follows the signatures of the trust file; remove it")
			}
			return e, nil
		}
		s, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(s) != ed25519.PublicKeySize+ed25519.SignatureSize {
			return nil, fmt.Errorf("line %d of the signatures of the trust file is not a signature; restore the file", i+1)
		}
		if len(e.Signatures) == maxSignatures {
			return nil, fmt.Errorf("the trust file has more than %d signatures", maxSignatures)
		}
		e.Signatures = append(e.Signatures, s)
	}
	return nil, errors.New("the end of the signatures of the trust file is missing; restore the file")
}

// Encode returns the text of the envelope.
func (e *Envelope) Encode() []byte {
	out := bytes.Clone(e.Document)
	if len(e.Signatures) == 0 {
		return out
	}
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n') // Sign has signed these bytes
	}
	out = append(out, beginLine+"\n"...)
	for _, s := range e.Signatures {
		out = append(base64.StdEncoding.AppendEncode(out, s), '\n')
	}
	return append(out, endLine+"\n"...)
}

// Sign adds a signature over the bytes of the document. It replaces an earlier one of the same key.
func (e *Envelope) Sign(s sign.Signer) error {
	if n := len(e.Document); n > 0 && e.Document[n-1] != '\n' {
		if len(e.Signatures) > 0 {
			return errors.New("the document of the trust file does not end with a new line, but has signatures")
		}
		e.Document = append(bytes.Clone(e.Document), '\n')
	}
	signature, err := sign.Make(s, signatureDomain, e.Document)
	if err != nil {
		return err
	}
	public := signature[:ed25519.PublicKeySize]
	for i, other := range e.Signatures {
		if bytes.Equal(other[:ed25519.PublicKeySize], public) {
			e.Signatures[i] = signature
			return nil
		}
	}
	e.Signatures = append(e.Signatures, signature)
	return nil
}

// Signers returns the IDs of the keys with a valid signature, each once. An invalid signature is an
// error.
func (e *Envelope) Signers() (out []ID, err error) {
	seen := map[ID]bool{}
	for i, s := range e.Signatures {
		key, err := sign.Verify(signatureDomain, e.Document, s)
		if err != nil {
			return nil, fmt.Errorf("signature %d of the trust file does not match its document; sign the file again "+
				"with nearside trust sign", i+1)
		}
		if id := PublicKey(key).ID(); !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out, nil
}
