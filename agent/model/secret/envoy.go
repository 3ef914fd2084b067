package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// EnvoyText is an Envoy message in YAML or JSON. Output replaces fields that hold secrets by their
// name ([Field]) with [Redacted]. The output is then JSON without comments, because comments could
// contain secrets. The zero value is an empty text. EnvoyText is immutable.
type EnvoyText struct {
	text *string
	open bool
}

// NewEnvoyText returns a text; for "" it returns the zero value.
func NewEnvoyText(text string) EnvoyText {
	if text == "" {
		return EnvoyText{}
	}
	return EnvoyText{text: &text}
}

// Reveal returns the text with its secrets.
func (t EnvoyText) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// IsZero reports whether the text is empty.
func (t EnvoyText) IsZero() bool { return t.text == nil }

// Equal reports whether two texts are equal.
func (t EnvoyText) Equal(o EnvoyText) bool { return t.Reveal() == o.Reveal() }

func (t EnvoyText) opened() any { return EnvoyText{t.text, true} }

// Shown returns the text without its secrets.
func (t EnvoyText) Shown() string {
	text := t.Reveal()
	if !suspect(text) {
		return text
	}
	n := parse(text)
	if n == nil {
		return Redacted
	}
	if hidden := hide(n, false); hidden != n || HoldsKey(text) { // a key may be in a comment
		return indented(hidden)
	}
	return text
}

// MarshalJSON returns the redacted text.
func (t EnvoyText) MarshalJSON() ([]byte, error) {
	if t.open {
		return strict.MarshalJSON(t.Reveal())
	}
	return strict.MarshalJSON(t.Shown())
}

// Format prints the redacted text.
func (t EnvoyText) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.Shown()) }

// DecodeNode decodes the text.
func (t *EnvoyText) DecodeNode(d *strict.Decoder, n *strict.Node) {
	if n.Kind == strict.Null {
		return
	}
	if n.Kind != strict.String {
		d.Faultf(n.Line, "a string with YAML or JSON is required, not %s", n.Kind)
		return
	}
	*t = NewEnvoyText(n.Text)
	if strings.Contains(n.Text, "[redacted") {
		if v := parse(n.Text); IsRedacted(n.Text) || v != nil && marked(v, false) {
			mark(d, n)
		}
	}
}

// EnvoyValue is a part of an Envoy message, of any JSON type. Its secrets are those of [EnvoyText];
// with Hidden the whole value is a secret.
type EnvoyValue struct {
	JSON   []byte // canonical
	Hidden bool
	open   bool
}

// DecodeNode decodes any value.
func (r *EnvoyValue) DecodeNode(_ *strict.Decoder, n *strict.Node) { r.JSON = n.Canonical() }

// DecodesNull marks null as a valid value.
func (r *EnvoyValue) DecodesNull() {}

// IsZero reports whether there is no value.
func (r EnvoyValue) IsZero() bool { return len(r.JSON) == 0 }

// Equal reports whether two values are equal.
func (r EnvoyValue) Equal(o EnvoyValue) bool { return bytes.Equal(r.JSON, o.JSON) }

func (r EnvoyValue) opened() any { return EnvoyValue{JSON: r.JSON, open: true} }

// Shown returns the value without its secrets, as canonical JSON.
func (r EnvoyValue) Shown() []byte {
	switch {
	case len(r.JSON) == 0:
		return []byte("null")
	case r.open || !r.Hidden && !suspect(string(r.JSON)):
		return r.JSON
	}
	n := parse(string(r.JSON))
	if n == nil {
		return []byte(`"` + Redacted + `"`)
	}
	return hide(n, r.Hidden).Canonical()
}

// MarshalJSON returns the redacted value.
func (r EnvoyValue) MarshalJSON() ([]byte, error) { return r.Shown(), nil }

// Format prints the redacted value.
func (r EnvoyValue) Format(f fmt.State, _ rune) { _, _ = f.Write(r.Shown()) }

// Marked reports whether a mark replaces a secret for which nothing is stored; see [Missing].
func (r EnvoyValue) Marked() bool {
	n := parse(string(r.JSON))
	return n != nil && bytes.Contains(r.JSON, []byte("[redacted")) && marked(n, r.Hidden)
}

// secretNames are the names of Envoy API fields that hold secrets, without underscores and in lower
// case: all fields that the API marks as sensitive, and unmarked fields that hold credentials. A
// test compares the list with the API.
var secretNames = [...]string{
	"accesstoken", "authorizationtoken", "authpassword", "authusername", "backendtoken", "clientsecret",
	"contextextensions", "credentials", "credentialsdatasource", "downstreamauthpassword", "downstreamauthpasswords",
	"downstreamauthusername", "googlerefreshtoken", "jsonkey", "keys", "password", "pkcs12",
	"privatekey", "privatekeyprovider", "refreshtoken", "secret",
	"secretaccesskey", "secretdata", "secrets", "sessiontoken", "users", "webidentitytokendatasource",
}

// shownFields are fields below a secret field that name its source and type. They are not redacted.
var shownFields = [...]string{"@type", "environmentvariable", "filename", "sdsconfig", "watcheddirectory"}

// keyFields are the resource fields that hold secrets.
var keyFields = [...]string{"key", "clientkey"}

// ResourceField reports whether a field of a resource or of Envoy's API with that name holds a
// secret.
func ResourceField(name string) bool {
	return Field(name) || slices.Contains(keyFields[:], foldName(name))
}

// Field reports whether a field of Envoy's API with that name, in either form, holds a secret.
func Field(name string) bool { return slices.Contains(secretNames[:], foldName(name)) }

func foldName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// suspect reports cheaply, without parsing, whether a text may contain a secret.
func suspect(text string) bool {
	if HoldsKey(text) {
		return true
	}
	folded := foldName(text)
	return strings.Contains(folded, `\u`) || strings.Contains(folded, `\x`) || // escaped names
		slices.ContainsFunc(secretNames[:], func(f string) bool { return strings.Contains(folded, f) })
}

// hide returns a tree with redacted secrets. It returns the same tree if there are none.
func hide(n *strict.Node, hidden bool) *strict.Node {
	switch n.Kind {
	case strict.Null:
	case strict.Mapping:
		return n.Mapped(func(key string, _ int, v *strict.Node) *strict.Node {
			return hide(v, (hidden || Field(key)) && !slices.Contains(shownFields[:], foldName(key)))
		})
	case strict.List:
		return n.Mapped(func(_ string, _ int, v *strict.Node) *strict.Node { return hide(v, hidden) })
	default:
		if hidden {
			return &strict.Node{Kind: strict.String, Line: n.Line, Size: 1, Text: Redacted}
		}
		return hideKeys(n)
	}
	return n
}

// marked reports whether a mark replaces a secret.
func marked(n *strict.Node, hidden bool) bool {
	switch n.Kind {
	case strict.Mapping:
		return slices.ContainsFunc(n.Pairs, func(p strict.Pair) bool { return marked(p.Value, hidden || Field(p.Key)) })
	case strict.List:
		return slices.ContainsFunc(n.Items, func(v *strict.Node) bool { return marked(v, hidden) })
	}
	return hidden && n.Kind == strict.String && IsRedacted(n.Text)
}

// indented returns a tree as indented JSON.
func indented(n *strict.Node) string {
	var b bytes.Buffer
	_ = json.Indent(&b, n.Canonical(), "", "  ") // Canonical returns valid JSON
	return b.String()
}

// keyWords are strings that every private key in PEM contains (RFC 7468), and their base64 forms at
// the offsets 0, 1, and 2.
var keyWords = [...]string{"PRIVATE KEY-----", "UFJJVkFURSBLRVkt", "BSSVZBVEUgS0VZ", "QUklWQVRFIEtFW"}

// HoldsKey reports whether a text contains a private key in PEM, also in base64, in any field.
func HoldsKey(text string) bool {
	return slices.ContainsFunc(keyWords[:], func(w string) bool { return strings.Contains(text, w) })
}
