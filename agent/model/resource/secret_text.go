package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// EnvoyText is a message of Envoy, given as the text of YAML or JSON. Fields that hold secrets by
// their name ([SecretField]) are shown as [Redacted]; the text is then shown as JSON, without
// comments, in which secrets could stand. The zero value is an empty text. It is immutable.
type EnvoyText struct {
	text *string
	open bool
}

// NewEnvoyText returns a text; "" gives the zero value.
func NewEnvoyText(text string) EnvoyText {
	if text == "" {
		return EnvoyText{}
	}
	return EnvoyText{text: &text}
}

// Reveal returns the text itself.
func (t EnvoyText) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// IsZero reports whether the text is empty.
func (t EnvoyText) IsZero() bool { return t.text == nil }

// Equal reports whether two texts are the same.
func (t EnvoyText) Equal(o EnvoyText) bool { return t.Reveal() == o.Reveal() }

func (t EnvoyText) opened() any { return EnvoyText{t.text, true} }

// Shown returns the text without its secrets.
func (t EnvoyText) Shown() string {
	text := t.Reveal()
	if !suspect(text) {
		return text
	}
	n := parseText(text)
	if n == nil {
		return Redacted
	}
	if hidden := hide(n, false); hidden != n || holdsKey(text) { // in a comment
		return indented(hidden)
	}
	return text
}

// MarshalJSON writes the text as it is shown.
func (t EnvoyText) MarshalJSON() ([]byte, error) {
	if t.open {
		return marshalValue(t.Reveal())
	}
	return marshalValue(t.Shown())
}

// Format writes the text as it is shown.
func (t EnvoyText) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.Shown()) }

func (t *EnvoyText) decodeNode(d *decoder, n *node) {
	if n.kind == nodeNull {
		return
	}
	if n.kind != nodeString {
		d.faultf(n.line, "%s is given, a string with YAML or JSON is wanted", n.kind)
		return
	}
	*t = NewEnvoyText(n.text)
	if strings.Contains(n.text, "[redacted") {
		if v := parseText(n.text); IsRedacted(n.text) || v != nil && marked(v, false) {
			d.mark(n)
		}
	}
}

// EnvoyValue is a part of a message of Envoy, as a value of any form. Its secrets are those of
// [EnvoyText]; with Hidden all of it is one.
type EnvoyValue struct {
	JSON   []byte // canonical
	Hidden bool
	open   bool
}

func (r *EnvoyValue) decodeNode(_ *decoder, n *node) { r.JSON = canonical(n) }

// IsZero reports whether there is no value.
func (r EnvoyValue) IsZero() bool { return len(r.JSON) == 0 }

// Equal reports whether two values are the same.
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
	n := parseText(string(r.JSON))
	if n == nil {
		return []byte(`"` + Redacted + `"`)
	}
	return canonical(hide(n, r.Hidden))
}

// MarshalJSON writes the value as it is shown.
func (r EnvoyValue) MarshalJSON() ([]byte, error) { return r.Shown(), nil }

// Format writes the value as it is shown.
func (r EnvoyValue) Format(f fmt.State, _ rune) { _, _ = f.Write(r.Shown()) }

// Check reports a mark in the place of a secret, which is one that nothing is stored for.
func (r EnvoyValue) Check(v *Validator) bool {
	if n := parseText(string(r.JSON)); n != nil && bytes.Contains(r.JSON, []byte("[redacted")) && marked(n, r.Hidden) {
		v.Faultf("%s", redactedFault)
		return false
	}
	return true
}

// secretFields are the names of the fields of Envoy's API that hold secrets, without underscores
// and in lower case: all that the API marks as sensitive, and those that it does not mark and that
// hold a credential. A test holds the list to the marks.
var secretFields = [...]string{
	"accesstoken", "authorizationtoken", "authpassword", "authusername", "backendtoken", "clientsecret",
	"contextextensions", "credentials", "credentialsdatasource", "downstreamauthpassword", "downstreamauthpasswords",
	"downstreamauthusername", "googlerefreshtoken", "jsonkey", "keys", "password", "pkcs12",
	"privatekey", "privatekeyprovider", "refreshtoken", "secret",
	"secretaccesskey", "secretdata", "secrets", "sessiontoken", "users", "webidentitytokendatasource",
}

// shownFields are the fields below a secret one that say where it comes from, and of what type it
// is.
var shownFields = [...]string{"@type", "environmentvariable", "filename", "sdsconfig", "watcheddirectory"}

// SecretField reports whether a field of Envoy's API with that name, in either form, holds a
// secret.
func SecretField(name string) bool { return slices.Contains(secretFields[:], foldName(name)) }

func foldName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// suspect reports whether a text may hold a secret, for less than it takes to read it.
func suspect(text string) bool {
	if holdsKey(text) {
		return true
	}
	folded := foldName(text)
	return strings.Contains(folded, `\u`) || strings.Contains(folded, `\x`) || // names in escapes
		slices.ContainsFunc(secretFields[:], func(f string) bool { return strings.Contains(folded, f) })
}

// parseText reads the one document of a text, nil where there is none.
func parseText(text string) *node {
	var out *node
	parseStream([]byte(text), Limits{}.withDefaults(), func(doc document) bool {
		out = doc.root
		return false
	})
	return out
}

// hide returns a tree with its secrets replaced; the same tree where there is none.
func hide(n *node, hidden bool) *node {
	switch n.kind {
	case nodeNull:
	case nodeMapping:
		return n.mapped(func(key string) func(*node) *node {
			below := (hidden || SecretField(key)) && !slices.Contains(shownFields[:], foldName(key))
			return func(v *node) *node { return hide(v, below) }
		})
	case nodeList:
		return n.mapped(func(string) func(*node) *node { return func(v *node) *node { return hide(v, hidden) } })
	default:
		if hidden {
			return &node{kind: nodeString, line: n.line, size: 1, text: Redacted}
		}
		return hideKeys(n)
	}
	return n
}

// mapped returns a mapping or list with other values; the same node where all are as they were.
func (n *node) mapped(value func(key string) func(*node) *node) *node {
	out := *n
	out.pairs, out.items = slices.Clone(n.pairs), slices.Clone(n.items)
	changed := false
	for i := range out.pairs {
		out.pairs[i].value = value(n.pairs[i].key)(n.pairs[i].value)
		changed = changed || out.pairs[i].value != n.pairs[i].value
	}
	for i := range out.items {
		out.items[i] = value("")(n.items[i])
		changed = changed || out.items[i] != n.items[i]
	}
	if !changed {
		return n
	}
	return &out
}

// marked reports whether a mark stands in the place of a secret.
func marked(n *node, hidden bool) bool {
	switch n.kind {
	case nodeMapping:
		return slices.ContainsFunc(n.pairs, func(p pair) bool { return marked(p.value, hidden || SecretField(p.key)) })
	case nodeList:
		return slices.ContainsFunc(n.items, func(v *node) bool { return marked(v, hidden) })
	}
	return hidden && n.kind == nodeString && IsRedacted(n.text)
}

// indented returns a tree as JSON for people.
func indented(n *node) string {
	var b bytes.Buffer
	_ = json.Indent(&b, canonical(n), "", "  ") // what canonical writes is JSON
	return b.String()
}

// keyWords are what every private key in PEM holds (RFC 7468), and what base64 makes of it behind
// 0, 1 or 2 bytes.
var keyWords = [...]string{"PRIVATE KEY-----", "UFJJVkFURSBLRVkt", "BSSVZBVEUgS0VZ", "QUklWQVRFIEtFW"}

// holdsKey reports whether a text holds a private key in PEM, in base64 or not, whatever field it
// stands in.
func holdsKey(text string) bool {
	return slices.ContainsFunc(keyWords[:], func(w string) bool { return strings.Contains(text, w) })
}
