// Package secret defines values that are never printed, and redacts secrets in documents.
//
// A secret marshals as [Redacted]. [Reveal] copies a value so that it marshals with its secrets.
// When a redacted document is submitted, [Restore] replaces the marks by the secrets.
package secret

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Redacted replaces secrets wherever a resource is printed. Envoy uses the same text.
const Redacted = "[redacted]"

// redactedBefore is the prefix of marks in a comparison, where secrets are numbered.
const redactedBefore = "[redacted "

// IsRedacted reports whether a text is a mark that replaces a secret.
func IsRedacted(s string) bool {
	s = strings.TrimSpace(s)
	return s == Redacted || strings.HasPrefix(s, redactedBefore) && strings.HasSuffix(s, "]")
}

// Text is a string that is never printed: JSON, fmt, and slog show [Redacted]. Only [Reveal] makes
// it marshal in clear text. The zero value is no secret. Text is immutable.
type Text struct {
	text *string // a pointer, because fmt prints addresses where it cannot call methods
	open bool    // set in the copies of Reveal
}

// NewText returns a secret; for "" it returns the zero value.
func NewText(text string) Text {
	if text == "" {
		return Text{}
	}
	return Text{text: &text}
}

// Reveal returns the secret in clear text.
func (s Text) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no secret.
func (s Text) IsZero() bool { return s.text == nil }

// Equal reports whether two secrets are equal.
func (s Text) Equal(o Text) bool { return s.Reveal() == o.Reveal() }

func (s Text) opened() any { return Text{s.text, true} }

// MarshalJSON returns [Redacted].
func (s Text) MarshalJSON() ([]byte, error) {
	if s.open || s.IsZero() {
		return strict.MarshalJSON(s.Reveal())
	}
	return strict.MarshalJSON(Redacted)
}

// Format prints [Redacted] for every verb.
func (s Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redactedUnless(s.IsZero())) }

// DecodeNode decodes the secret.
func (s *Text) DecodeNode(d *strict.Decoder, n *strict.Node) {
	if text, ok := secretOf(d, n, "a string"); ok {
		*s = NewText(text)
	}
}

// Bytes is like [Text] for bytes, which are base64 in documents.
type Bytes struct {
	bytes *[]byte
	open  bool
}

// NewBytes returns a secret; for no bytes it returns the zero value. The caller must not modify the
// bytes afterwards.
func NewBytes(b []byte) Bytes {
	if len(b) == 0 {
		return Bytes{}
	}
	return Bytes{bytes: &b}
}

// Reveal returns the bytes in clear text. Callers must not modify them.
func (s Bytes) Reveal() []byte {
	if s.bytes == nil {
		return nil
	}
	return *s.bytes
}

// IsZero reports whether there is no secret.
func (s Bytes) IsZero() bool { return s.bytes == nil }

// Equal reports whether two secrets are equal.
func (s Bytes) Equal(o Bytes) bool { return bytes.Equal(s.Reveal(), o.Reveal()) }

func (s Bytes) opened() any { return Bytes{s.bytes, true} }

// MarshalJSON returns [Redacted].
func (s Bytes) MarshalJSON() ([]byte, error) {
	if b := s.Reveal(); s.IsZero() || s.open && !IsRedacted(string(b)) {
		return strict.MarshalJSON(b)
	}
	return strict.MarshalJSON(Redacted)
}

// Format prints [Redacted] for every verb.
func (s Bytes) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, redactedUnless(s.IsZero()))
}

// DecodeNode decodes the secret.
func (s *Bytes) DecodeNode(d *strict.Decoder, n *strict.Node) {
	text, ok := secretOf(d, n, "a string in base64")
	if !ok {
		return
	}
	if IsRedacted(text) {
		*s = NewBytes([]byte(text)) // the fault is already reported, and the field is set
		return
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		d.Faultf(n.Line, "the value, which is a secret, is not base64 (RFC 4648 section 4): %v", err)
		return
	}
	*s = NewBytes(raw)
}

func redactedUnless(empty bool) string {
	if empty {
		return ""
	}
	return Redacted
}

// secretOf returns the text of a node that holds a secret. If the node has another type, it returns
// false and reports a fault that does not quote the value.
func secretOf(d *strict.Decoder, n *strict.Node, want string) (string, bool) {
	switch {
	case n.Kind == strict.Null:
		return "", false
	case n.Kind != strict.String:
		d.Faultf(n.Line, "%s is given, %s is expected", n.Kind, want)
		return "", false
	case IsRedacted(n.Text):
		mark(d, n)
	}
	return n.Text, true
}

// mark reports a mark for which nothing is stored, unless another agent will replace it.
func mark(d *strict.Decoder, n *strict.Node) {
	if !d.Placeholders {
		d.Faultf(n.Line, "%s", Missing)
	}
}

// Missing is the fault for a mark without a stored secret.
const Missing = Redacted +
	" replaces a secret that the agent does not show, and no secret is stored for this field: set the secret itself, " +
	"or file; a mark retains a secret only in a document that is written back over the API to the resource that it " +
	"was read from"
