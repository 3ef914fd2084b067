package strict

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Decoder decodes the nodes of one document into Go values and collects all faults. Use [New] to
// create one.
type Decoder struct {
	Hooks
	Faults Faults
	Types  Types // may be shared by the decoders of a stream
	Depth  int   // maximum nesting
	NoNull bool  // reject null; otherwise null leaves a field unchanged
	// Placeholders allows types to accept a placeholder instead of a value.
	Placeholders bool
	// Top lists additional keys that are known at the top of the document, for messages.
	Top []string

	path    []step
	dropped int // number of faults beyond maxFaults
}

// Hooks customizes a decoder. Each hook may be nil.
type Hooks struct {
	// Unknown returns the reason of the fault for an unknown key.
	Unknown func(d *Decoder, p *Pair, known []string) string
	// Secret reports whether a field of that name contains a secret. Faults do not quote secrets.
	Secret func(name string) bool
	// Strings returns the map for the pairs of a mapping of strings, or nil to decode it normally.
	Strings func(d *Decoder, pairs []Pair) map[string]string
	// Before returns the node from which to decode a field of a struct, or nil after a fault.
	Before func(d *Decoder, f *Field, n *Node, t reflect.Type) *Node
	// After checks a decoded field of a struct. clean is true if decoding it caused no faults.
	After func(d *Decoder, f *Field, n *Node, v reflect.Value, clean bool)
}

// New returns a decoder of one document.
func New(lim Limits, types Types, hooks Hooks) Decoder {
	return Decoder{Hooks: hooks, Types: types, Depth: lim.Depth}
}

// step is one step of a field path: a name, a key of a map, or the index of an item.
type step struct {
	name  string
	index int
	kind  uint8  // stepField, stepKey, or stepIndex
	field *Field // nil if unknown
}

const (
	stepField = iota
	stepKey
	stepIndex
)

// maxFaults limits the faults of one document, because a malicious document could otherwise cause
// more bytes of messages than it has itself.
const maxFaults = 1000

// Enter adds a field to the path of faults until Leave.
func (d *Decoder) Enter(field string) { d.path = append(d.path, step{name: field}) }

// EnterItem adds a list index to the path of faults until Leave.
func (d *Decoder) EnterItem(i int) { d.path = append(d.path, step{index: i, kind: stepIndex}) }

// Leave removes the last element of the path.
func (d *Decoder) Leave() { d.path = d.path[:len(d.path)-1] }

func (d *Decoder) enterKey(key string) { d.path = append(d.path, step{name: key, kind: stepKey}) }

// enterUser adds a field name from the document, which may contain any character.
func (d *Decoder) enterUser(name string) {
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			d.enterKey(Short(name))
			return
		}
	}
	d.Enter(Short(name))
}

// Path returns the field path of the value being decoded.
func (d *Decoder) Path() string {
	var b strings.Builder
	for i, s := range d.path {
		switch {
		case s.kind == stepKey:
			fmt.Fprintf(&b, "[%q]", s.name)
		case s.kind == stepIndex:
			fmt.Fprintf(&b, "[%d]", s.index)
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// AtTop reports whether the value being decoded is the document or one of its fields.
func (d *Decoder) AtTop() bool { return len(d.path) <= 1 }

// Below reports whether the value being decoded is inside a field of that name.
func (d *Decoder) Below(field string) bool {
	return slices.ContainsFunc(d.path, func(s step) bool { return s.kind == stepField && s.name == field })
}

// inSecret reports whether the value being decoded is a secret according to the names of the
// enclosing fields. This includes misspelled fields that no type knows.
func (d *Decoder) inSecret() bool {
	return d.Secret != nil &&
		slices.ContainsFunc(d.path, func(s step) bool { return s.kind != stepIndex && d.Secret(s.name) })
}

// full reports whether the limit of faults is reached, and then counts the dropped fault.
func (d *Decoder) full() bool {
	if len(d.Faults) < maxFaults {
		return false
	}
	d.dropped++
	return true
}

// Faultf reports a fault of the value being decoded. It redacts text that looks like a private key.
func (d *Decoder) Faultf(line int, format string, args ...any) {
	if !d.full() {
		d.Add(Fault{Line: line, Field: d.Path(), Reason: clip.Secrets(fmt.Sprintf(format, args...))})
	}
}

// Add reports a fault with its field path.
func (d *Decoder) Add(f Fault) {
	if !d.full() {
		d.Faults = append(d.Faults, f)
	}
}

// Finish returns all faults in the order of their lines.
func (d *Decoder) Finish() Faults {
	if d.dropped > 0 {
		d.Faults = append(d.Faults, Fault{Line: d.Faults[len(d.Faults)-1].Line,
			Reason: fmt.Sprintf("faults of this document that are not shown: %d", d.dropped)})
	}
	slices.SortStableFunc(d.Faults, func(a, b Fault) int { return a.Line - b.Line })
	return d.Faults
}

const wholeNumber = "a whole number"

// WrongType reports a value that does not have the expected type.
func (d *Decoder) WrongType(n *Node, want string) {
	if last := len(d.path) - 1; want == wholeNumber && last >= 0 && d.path[last].field != nil &&
		d.path[last].field.Max > 0 {
		want = fmt.Sprintf("%s from 0 to %d", want, d.path[last].field.Max)
	}
	switch {
	case d.inSecret():
		d.Faultf(n.Line, "%s is given, %s is expected", n.Kind, want)
	case want == "a string" && (n.Kind == Bool || n.Kind == Int || n.Kind == Float):
		d.Faultf(n.Line, "%s is %s, a string is expected: write it in quotes, %q", n.Show(), n.Kind, Short(n.Text))
	case want == "a boolean" && n.Kind == String:
		d.Faultf(n.Line, "%s is a string, a boolean is expected: write true or false without quotes", n.Show())
	case n.Kind == String && strings.HasPrefix(want, wholeNumber) && new(Node).setInt(n.Text):
		d.Faultf(n.Line, "%s is a string, %s is expected: write it without quotes", n.Show(), want)
	case n.Kind == String:
		d.Faultf(n.Line, "%s is a string, %s is expected", n.Show(), want)
	case n.Kind == Mapping || n.Kind == List:
		d.Faultf(n.Line, "%s is given, %s is expected", n.Kind, want)
	default:
		d.Faultf(n.Line, "%s is %s, %s is expected", n.Show(), n.Kind, want)
	}
}

// Is reports whether a node is of a kind, and reports a fault otherwise.
func (d *Decoder) Is(n *Node, kind Kind, want string) bool {
	if n.Kind != kind {
		d.WrongType(n, want)
	}
	return n.Kind == kind
}

// Null reports a fault for a null field, unless null means that the field is not set.
func (d *Decoder) Null(line int) {
	if d.NoNull {
		d.Faultf(line, "null is not allowed; set a value")
	}
}

// Decode decodes a node into the value that into points to. Null leaves the value unchanged.
func (d *Decoder) Decode(n *Node, into any) {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		d.Faultf(n.Line, "cannot be decoded: %T is not a pointer", into)
		return
	}
	d.value(n, v.Elem())
}

// Fields decodes the fields of a mapping. Fields in refused are valid only in other documents of
// the same kind.
func (d *Decoder) Fields(n *Node, known, refused []string, decode func(f *Pair)) {
	if !d.Is(n, Mapping, "a mapping") {
		return
	}
	for i := range n.Pairs {
		f := &n.Pairs[i]
		isKnown := slices.Contains(known, f.Key)
		if !isKnown && !slices.Contains(refused, f.Key) {
			d.OnlyKnown(f, known)
			continue
		}
		d.Enter(f.Key)
		switch {
		case isKnown && f.Value.Kind == Null:
			d.Null(f.Line)
		case isKnown:
			decode(f)
		default:
			d.Faultf(f.Line, "this kind has no %s; it has %s", f.Key, strings.Join(known, ", "))
		}
		d.Leave()
	}
}

// OnlyKnown reports an unknown key.
func (d *Decoder) OnlyKnown(p *Pair, known []string) {
	if d.full() {
		return
	}
	d.enterUser(p.Key)
	defer d.Leave()
	if d.AtTop() {
		known = append(d.Top[:len(d.Top):len(d.Top)], known...)
	}
	if d.Unknown != nil {
		d.Faultf(p.Line, "%s", d.Unknown(d, p, known))
		return
	}
	reason := fmt.Sprintf("unknown field %s; known here: %s", Quote(p.Key), strings.Join(known, ", "))
	if near := Nearest(p.Key, known); near != "" {
		reason = fmt.Sprintf("unknown field %s; did you mean %q?", Quote(p.Key), near)
	}
	d.Faultf(p.Line, "%s", reason)
}

// value decodes n into v.
func (d *Decoder) value(n *Node, v reflect.Value) {
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		if n.Kind == Null {
			if !d.Types.of(t.Elem()).null {
				d.Null(n.Line)
			}
			v.SetZero()
			return
		}
		v.Set(reflect.New(t.Elem()))
		d.value(n, v.Elem())
		if e := v.Elem(); e.Kind() == reflect.Slice && e.IsNil() && n.Kind == List {
			e.Set(reflect.MakeSlice(e.Type(), 0, 0)) // a pointer to a list distinguishes an empty list from a missing one
		}
		return
	}
	ti := d.Types.of(t)
	switch {
	case n.Kind == Null && d.NoNull && !ti.null:
		d.Null(n.Line)
		return
	case ti.node:
		v.Addr().Interface().(NodeDecoder).DecodeNode(d, n)
		return
	case n.Kind == Null:
		return
	case ti.text:
		if n.Kind != String {
			d.WrongType(n, "a string")
		} else if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Text)); err != nil {
			d.Faultf(n.Line, "%s: %v", n.Show(), err)
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		d.structure(n, v, ti)
	case reflect.Map:
		d.mapping(n, v)
	case reflect.Slice:
		d.list(n, v)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			v.Set(reflect.ValueOf(n.plain(goNumber)))
			return
		}
		d.Faultf(n.Line, "cannot be decoded: documents do not support %s", t)
	default:
		d.scalar(n, v)
	}
}

func (d *Decoder) structure(n *Node, v reflect.Value, ti *typeInfo) {
	if n.Kind != Mapping {
		known := len(d.Faults)
		d.WrongType(n, "a mapping")
		if len(d.Faults) > known {
			d.Faults[known].Reason += ti.list()
		}
		return
	}
	for i := range n.Pairs {
		p := &n.Pairs[i]
		f := ti.find(p.Key)
		if f == nil {
			d.OnlyKnown(p, ti.names())
			continue
		}
		d.path = append(d.path, step{name: p.Key, field: f})
		known, from, at := len(d.Faults), p.Value, v.FieldByIndex(f.index)
		if d.Before != nil {
			from = d.Before(d, f, p.Value, at.Type())
		}
		if from != nil {
			d.value(from, at)
			if d.After != nil {
				d.After(d, f, from, at, len(d.Faults) == known)
			}
		}
		d.Leave()
	}
}
