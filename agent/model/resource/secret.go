package resource

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"reflect"
	"strings"
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

// Secret is a text that is shown to nobody: its JSON form and what fmt writes of it are [Redacted],
// and so is what slog makes of these. [Marshal] alone writes the text itself. The zero value is no
// secret. It is immutable.
type Secret struct {
	text *string // behind a pointer: fmt writes an address where it cannot call methods
	open bool    // of the copies that Marshal makes
}

// NewSecret returns a secret; "" gives the zero value.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal returns the text itself.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.text == nil }

// Equal reports whether two secrets are the same text.
func (s Secret) Equal(o Secret) bool { return s.Reveal() == o.Reveal() }

func (s Secret) opened() any { return Secret{s.text, true} }

// MarshalJSON writes [Redacted].
func (s Secret) MarshalJSON() ([]byte, error) {
	if s.open || s.IsZero() {
		return marshalValue(s.Reveal())
	}
	return marshalValue(Redacted)
}

// Format writes [Redacted] for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redactedUnless(s.IsZero())) }

func (s *Secret) decodeNode(d *decoder, n *node) {
	if text, ok := d.secret(n, "a string"); ok {
		*s = NewSecret(text)
	}
}

// SecretBytes is [Secret] for bytes, which are base64 in documents.
type SecretBytes struct {
	bytes *[]byte
	open  bool
}

// NewSecretBytes returns a secret; without bytes it is the zero value. The bytes must not be
// changed afterwards.
func NewSecretBytes(b []byte) SecretBytes {
	if len(b) == 0 {
		return SecretBytes{}
	}
	return SecretBytes{bytes: &b}
}

// Reveal returns the bytes themselves, which must not be changed.
func (s SecretBytes) Reveal() []byte {
	if s.bytes == nil {
		return nil
	}
	return *s.bytes
}

// IsZero reports whether there is no secret.
func (s SecretBytes) IsZero() bool { return s.bytes == nil }

// Equal reports whether two secrets are the same bytes.
func (s SecretBytes) Equal(o SecretBytes) bool { return bytes.Equal(s.Reveal(), o.Reveal()) }

func (s SecretBytes) opened() any { return SecretBytes{s.bytes, true} }

// MarshalJSON writes [Redacted].
func (s SecretBytes) MarshalJSON() ([]byte, error) {
	if b := s.Reveal(); s.IsZero() || s.open && !IsRedacted(string(b)) {
		return marshalValue(b)
	}
	return marshalValue(Redacted)
}

// Format writes [Redacted] for every verb.
func (s SecretBytes) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, redactedUnless(s.IsZero()))
}

func (s *SecretBytes) decodeNode(d *decoder, n *node) {
	text, ok := d.secret(n, "a string in base64")
	if !ok {
		return
	}
	if IsRedacted(text) {
		*s = NewSecretBytes([]byte(text)) // the fault is known, and the field is given
		return
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		d.faultf(n.line, "the value, which is a secret, is not base64 (RFC 4648 section 4): %v", err)
		return
	}
	*s = NewSecretBytes(raw)
}

func redactedUnless(empty bool) string {
	if empty {
		return ""
	}
	return Redacted
}

// secret returns the text of a node that is a secret, false with a fault where it is none. Faults
// do not quote it.
func (d *decoder) secret(n *node, want string) (string, bool) {
	switch {
	case n.kind == nodeNull:
		return "", false
	case n.kind != nodeString:
		d.faultf(n.line, "%s is given, %s is wanted", n.kind, want)
		return "", false
	case IsRedacted(n.text):
		d.mark(n)
	}
	return n.text, true
}

// mark reports a mark for which nothing is stored, unless marks are for another agent to see to.
func (d *decoder) mark(n *node) {
	if !d.shown {
		d.faultf(n.line, "%s", redactedFault)
	}
}

// redactedFault is about a mark for which nothing is stored.
const redactedFault = Redacted +
	" stands for a secret that the agent does not show, and none is stored for this field: write the secret itself, " +
	"or file; a mark keeps a secret only where a document goes back over the API to the resource that it was read from"

// secretValue is a type that is shown redacted.
type secretValue interface {
	opened() any // the same, shown as it is
}

// open returns a copy of a value in which all secrets are shown as they are. What holds none is
// shared.
func open(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Struct {
		if s, ok := v.Interface().(secretValue); ok {
			if o := reflect.ValueOf(s.opened()); o.Type() == v.Type() { // else it is that of an embedded one
				return o
			}
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() || v.Elem().Kind() == reflect.Func {
			return v
		}
		e := open(v.Elem())
		if v.Kind() == reflect.Interface {
			out := reflect.New(v.Type()).Elem()
			out.Set(e)
			return out
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(e)
		return out
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(open(v.Field(i)))
			}
		}
		return out
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(open(v.Index(i)))
		}
		return out
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(it.Key(), open(it.Value()))
		}
		return out
	}
	return v
}

// HoldsSecrets reports whether the type of a spec has a field for a secret, whether a resource
// makes use of it or not.
func HoldsSecrets(spec Spec) bool { return holdsSecrets(reflect.TypeOf(spec), map[reflect.Type]bool{}) }

func holdsSecrets(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == nil || seen[t] {
		return false
	}
	seen[t] = true
	if t.Implements(reflect.TypeFor[secretValue]()) {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holdsSecrets(t.Elem(), seen)
	case reflect.Map:
		return holdsSecrets(t.Key(), seen) || holdsSecrets(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && holdsSecrets(f.Type, seen) {
				return true
			}
		}
	}
	return false
}
