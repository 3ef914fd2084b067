// Package secret has the values of resources that are shown to nobody, and takes secrets out of
// documents.
//
// A secret writes itself as [Redacted]; [Reveal] makes a copy of a value that writes its secrets
// themselves. Where a shown document comes back, [Restore] puts the secrets in the places of their
// marks.
package secret

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Redacted stands for a secret wherever a resource is shown. It is also what Envoy writes in the
// place of one.
const Redacted = "[redacted]"

// redactedBefore begins the marks of a comparison, in which secrets have numbers.
const redactedBefore = "[redacted "

// IsRedacted reports whether a text is a mark that stands for a secret.
func IsRedacted(s string) bool {
	s = strings.TrimSpace(s)
	return s == Redacted || strings.HasPrefix(s, redactedBefore) && strings.HasSuffix(s, "]")
}

// Text is a text that is shown to nobody: its JSON form and what fmt writes of it are [Redacted],
// and so is what slog makes of these. [Marshal] alone writes the text itself. The zero value is no
// secret. It is immutable.
type Text struct {
	text *string // behind a pointer: fmt writes an address where it cannot call methods
	open bool    // of the copies that Marshal makes
}

// NewText returns a secret; "" gives the zero value.
func NewText(text string) Text {
	if text == "" {
		return Text{}
	}
	return Text{text: &text}
}

// Reveal returns the text itself.
func (s Text) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no secret.
func (s Text) IsZero() bool { return s.text == nil }

// Equal reports whether two secrets are the same text.
func (s Text) Equal(o Text) bool { return s.Reveal() == o.Reveal() }

func (s Text) opened() any { return Text{s.text, true} }

// MarshalJSON writes [Redacted].
func (s Text) MarshalJSON() ([]byte, error) {
	if s.open || s.IsZero() {
		return strict.MarshalJSON(s.Reveal())
	}
	return strict.MarshalJSON(Redacted)
}

// Format writes [Redacted] for every verb.
func (s Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redactedUnless(s.IsZero())) }

// DecodeNode reads the secret.
func (s *Text) DecodeNode(d *strict.Decoder, n *strict.Node) {
	if text, ok := secretOf(d, n, "a string"); ok {
		*s = NewText(text)
	}
}

// Bytes is [Text] for bytes, which are base64 in documents.
type Bytes struct {
	bytes *[]byte
	open  bool
}

// NewBytes returns a secret; without bytes it is the zero value. The bytes must not be
// changed afterwards.
func NewBytes(b []byte) Bytes {
	if len(b) == 0 {
		return Bytes{}
	}
	return Bytes{bytes: &b}
}

// Reveal returns the bytes themselves, which must not be changed.
func (s Bytes) Reveal() []byte {
	if s.bytes == nil {
		return nil
	}
	return *s.bytes
}

// IsZero reports whether there is no secret.
func (s Bytes) IsZero() bool { return s.bytes == nil }

// Equal reports whether two secrets are the same bytes.
func (s Bytes) Equal(o Bytes) bool { return bytes.Equal(s.Reveal(), o.Reveal()) }

func (s Bytes) opened() any { return Bytes{s.bytes, true} }

// MarshalJSON writes [Redacted].
func (s Bytes) MarshalJSON() ([]byte, error) {
	if b := s.Reveal(); s.IsZero() || s.open && !IsRedacted(string(b)) {
		return strict.MarshalJSON(b)
	}
	return strict.MarshalJSON(Redacted)
}

// Format writes [Redacted] for every verb.
func (s Bytes) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, redactedUnless(s.IsZero()))
}

// DecodeNode reads the secret.
func (s *Bytes) DecodeNode(d *strict.Decoder, n *strict.Node) {
	text, ok := secretOf(d, n, "a string in base64")
	if !ok {
		return
	}
	if IsRedacted(text) {
		*s = NewBytes([]byte(text)) // the fault is known, and the field is given
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

// secretOf returns the text of a node that is a secret, false with a fault where it is none. Faults
// do not quote it.
func secretOf(d *strict.Decoder, n *strict.Node, want string) (string, bool) {
	switch {
	case n.Kind == strict.Null:
		return "", false
	case n.Kind != strict.String:
		d.Faultf(n.Line, "%s is given, %s is wanted", n.Kind, want)
		return "", false
	case IsRedacted(n.Text):
		mark(d, n)
	}
	return n.Text, true
}

// mark reports a mark for which nothing is stored, unless marks are for another agent to see to.
func mark(d *strict.Decoder, n *strict.Node) {
	if !d.Placeholders {
		d.Faultf(n.Line, "%s", Missing)
	}
}

// Missing is the fault of a mark for which nothing is stored.
const Missing = Redacted +
	" stands for a secret that the agent does not show, and none is stored for this field: write the secret itself, " +
	"or file; a mark keeps a secret only where a document goes back over the API to the resource that it was read from"
