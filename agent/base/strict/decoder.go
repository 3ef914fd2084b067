package strict

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Decoder fills Go values from the nodes of one document and collects every fault on the way. The
// zero value is not ready for use; see [New].
type Decoder struct {
	Hooks
	Faults Faults
	Types  Types // may be shared by the decoders of a stream
	Depth  int   // of nesting that is allowed
	NoNull bool  // no field may be null; else null leaves a field as it was
	// Placeholders is true where types may accept a mark that stands for a value of theirs.
	Placeholders bool
	// Top names what else is known at the top of the document, for messages.
	Top []string

	path []step
	more int // faults beyond maxFaults, counted and not kept
}

// Hooks let the user of a decoder take part in the work. Each may be nil.
type Hooks struct {
	// Unknown returns the reason of the fault for a key that is none of the known ones.
	Unknown func(d *Decoder, p *Pair, known []string) string
	// Secret reports whether a field of that name holds a secret. Faults do not quote secrets.
	Secret func(name string) bool
	// Strings returns the map for the pairs of a mapping of strings, nil to have it decoded.
	Strings func(d *Decoder, pairs []Pair) map[string]string
	// Before returns the node to decode a field of a struct from, nil after a fault.
	Before func(d *Decoder, f *Field, n *Node, t reflect.Type) *Node
	// After checks a field of a struct that was decoded; clean says that this gave no fault.
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
	kind  uint8  // stepField, stepKey or stepIndex
	field *Field // nil where it is not known
}

const (
	stepField = iota
	stepKey
	stepIndex
)

// maxFaults bounds what one document reports; a hostile one could otherwise cost more in messages
// than in bytes.
const maxFaults = 1000

// Enter steps into a field for the faults until Leave.
func (d *Decoder) Enter(field string) { d.path = append(d.path, step{name: field}) }

// EnterItem steps into an item of a list for the faults until Leave.
func (d *Decoder) EnterItem(i int) { d.path = append(d.path, step{index: i, kind: stepIndex}) }

// Leave undoes the last Enter or EnterItem.
func (d *Decoder) Leave() { d.path = d.path[:len(d.path)-1] }

func (d *Decoder) enterKey(key string) { d.path = append(d.path, step{name: key, kind: stepKey}) }

// enterUser steps into a field with a name from the document, which may hold anything.
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

// AtTop reports whether the value being decoded is the document or a field of it.
func (d *Decoder) AtTop() bool { return len(d.path) <= 1 }

// Below reports whether a field of that name is around the value being decoded.
func (d *Decoder) Below(field string) bool {
	return slices.ContainsFunc(d.path, func(s step) bool { return s.kind == stepField && s.name == field })
}

// inSecret reports whether the value being decoded is a secret by the names of the fields around
// it, also where these are misspelt so far that no type knows them.
func (d *Decoder) inSecret() bool {
	return d.Secret != nil &&
		slices.ContainsFunc(d.path, func(s step) bool { return s.kind != stepIndex && d.Secret(s.name) })
}

// full reports, and counts, that a further fault will not be kept.
func (d *Decoder) full() bool {
	if len(d.Faults) < maxFaults {
		return false
	}
	d.more++
	return true
}

// Faultf reports a fault of the value being decoded. What looks like a private key is left out of
// it.
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
	if d.more > 0 {
		d.Faults = append(d.Faults, Fault{Line: d.Faults[len(d.Faults)-1].Line,
			Reason: fmt.Sprintf("%d further faults of this document are not shown", d.more)})
	}
	slices.SortStableFunc(d.Faults, func(a, b Fault) int { return a.Line - b.Line })
	return d.Faults
}

const wholeNumber = "a whole number"

// WrongType reports a value of another type than the one that is wanted.
func (d *Decoder) WrongType(n *Node, want string) {
	if last := len(d.path) - 1; want == wholeNumber && last >= 0 && d.path[last].field != nil &&
		d.path[last].field.Max > 0 {
		want = fmt.Sprintf("%s from 0 to %d", want, d.path[last].field.Max)
	}
	switch {
	case d.inSecret():
		d.Faultf(n.Line, "%s is given, %s is wanted", n.Kind, want)
	case want == "a string" && (n.Kind == Bool || n.Kind == Int || n.Kind == Float):
		d.Faultf(n.Line, "%s is %s, a string is wanted: write it in quotes, %q", n.Show(), n.Kind, Short(n.Text))
	case want == "a boolean" && n.Kind == String:
		d.Faultf(n.Line, "%s is a string, a boolean is wanted: write true or false without quotes", n.Show())
	case n.Kind == String && strings.HasPrefix(want, wholeNumber) && new(Node).setInt(n.Text):
		d.Faultf(n.Line, "%s is a string, %s is wanted: write it without quotes", n.Show(), want)
	case n.Kind == String:
		d.Faultf(n.Line, "%s is a string, %s is wanted", n.Show(), want)
	case n.Kind == Mapping || n.Kind == List:
		d.Faultf(n.Line, "%s is given, %s is wanted", n.Kind, want)
	default:
		d.Faultf(n.Line, "%s is %s, %s is wanted", n.Show(), n.Kind, want)
	}
}

// Is reports whether a node is of a kind, and a fault where it is not.
func (d *Decoder) Is(n *Node, kind Kind, want string) bool {
	if n.Kind != kind {
		d.WrongType(n, want)
	}
	return n.Kind == kind
}

// Null reports a fault for a field that is null, unless null stands for a field that is not given.
func (d *Decoder) Null(line int) {
	if d.NoNull {
		d.Faultf(line, "null is no value here: give one, or remove the field")
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

// Fields decodes the fields of a mapping that are given. Those that are refused belong to other
// documents of the same kind.
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
			d.Faultf(f.Line, "this kind has no %s; remove it", f.Key)
		}
		d.Leave()
	}
}

// OnlyKnown reports the key of a pair, which is none of those known.
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
			e.Set(reflect.MakeSlice(e.Type(), 0, 0)) // a pointer to a list distinguishes an empty one from none
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
		d.Faultf(n.Line, "cannot be decoded: %s is not a type of documents", t)
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
