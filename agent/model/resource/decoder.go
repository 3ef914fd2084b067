package resource

import (
	"encoding"
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// decoder fills Go values from the nodes of one document and collects every fault on the way.
// Reflection stays here and in typeinfo.go: what it fills is typed.
type decoder struct {
	lim    Limits
	path   []pathStep
	faults Faults
	more   int                        // faults beyond maxDocumentFaults, counted and not kept
	top    []string                   // further fields of the top level, for hints
	types  map[reflect.Type]*typeInfo // of this call, so that nothing is shared
	stored func(Key) *Resource        // whose secrets marks stand for; nil: marks stand for nothing
	shown  bool                       // marks stay, for an agent to see to
	noNull bool                       // of the spec that is decoded no field may be null
	sharer Sharer                     // nil: nothing is shared
	share  bool                       // maps of texts are shared
}

type pathStep struct {
	name  string
	index int
	kind  uint8 // stepField, stepKey or stepIndex
}

const (
	stepField = iota
	stepKey
	stepIndex
)

// nodeDecoder is a type that reads nodes in its own way.
type nodeDecoder interface {
	decodeNode(d *decoder, n *node)
}

// Bounds of what one call reports; a hostile document could otherwise cost more in messages than in
// bytes.
const (
	maxDocumentFaults = 1000
	maxStreamFaults   = 10_000
)

func (d *decoder) field(name string) { d.path = append(d.path, pathStep{name: name}) }
func (d *decoder) key(name string)   { d.path = append(d.path, pathStep{name: name, kind: stepKey}) }
func (d *decoder) index(i int)       { d.path = append(d.path, pathStep{index: i, kind: stepIndex}) }
func (d *decoder) pop()              { d.path = d.path[:len(d.path)-1] }

// where returns the field path of the value being decoded.
func (d *decoder) where() string {
	var faults []Fault
	v := NewValidator("", &faults)
	for _, s := range d.path {
		switch s.kind {
		case stepField:
			v = v.Field(s.name)
		case stepKey:
			v = v.Key(s.name)
		case stepIndex:
			v = v.Index(s.index)
		}
	}
	return v.path
}

// userField enters a field with a name from the document, which may hold anything.
func (d *decoder) userField(name string) {
	for i := range len(name) {
		if c := name[i]; !alnum(c) && c != '_' && c != '-' {
			d.key(short(name))
			return
		}
	}
	d.field(short(name))
}

// inSecret reports whether the value being decoded is a secret by the names of the fields around
// it, also where these are misspelt so far that no type knows them.
func (d *decoder) inSecret() bool {
	return slices.ContainsFunc(d.path, func(s pathStep) bool {
		return s.kind != stepIndex && (SecretField(s.name) || slices.Contains(keyFields[:], foldName(s.name)))
	})
}

// keyFields are the fields of resources that hold secrets.
var keyFields = [...]string{"key", "clientkey"}

// full reports, and counts, that a further fault will not be kept.
func (d *decoder) full() bool {
	if len(d.faults) < maxDocumentFaults {
		return false
	}
	d.more++
	return true
}

func (d *decoder) faultf(line int, format string, args ...any) {
	if d.full() {
		return
	}
	d.faults = append(d.faults, Fault{Line: line, Field: d.where(), Reason: clip.Secrets(fmt.Sprintf(format, args...))})
}

func (d *decoder) wrongType(n *node, want string) {
	switch {
	case d.inSecret():
		d.faultf(n.line, "%s is given, %s is wanted", n.kind, want)
	case want == "a string" && (n.kind == nodeBool || n.kind == nodeInt || n.kind == nodeFloat):
		d.faultf(n.line, "%s is %s, a string is wanted: write it in quotes, %q", n.show(), n.kind, short(n.text))
	case want == "a boolean" && n.kind == nodeString:
		d.faultf(n.line, "%s is a string, a boolean is wanted: write true or false without quotes", n.show())
	case n.kind == nodeString:
		d.faultf(n.line, "%s is a string, %s is wanted", n.show(), want)
	case n.kind == nodeMapping || n.kind == nodeList:
		d.faultf(n.line, "%s is given, %s is wanted", n.kind, want)
	default:
		d.faultf(n.line, "%s is %s, %s is wanted", n.show(), n.kind, want)
	}
}

// is reports whether a node is of a kind, and a fault where it is not.
func (d *decoder) is(n *node, kind nodeKind, want string) bool {
	if n.kind != kind {
		d.wrongType(n, want)
	}
	return n.kind == kind
}

// anyValue are types that hold whatever stands in a document, null as well.
var anyValue = [...]reflect.Type{reflect.TypeFor[Raw](), reflect.TypeFor[*Raw](), reflect.TypeFor[EnvoyValue](),
	reflect.TypeFor[*EnvoyValue]()}

// null notes a fault for a field that is null, where that is not taken for one that is not given.
func (d *decoder) null(line int) {
	if d.noNull {
		d.faultf(line, "null is no value here: give one, or remove the field")
	}
}

// value decodes n into v. Null leaves v as it is not given.
func (d *decoder) value(n *node, v reflect.Value) {
	t := v.Type()
	if n.kind == nodeNull && d.noNull && !slices.Contains(anyValue[:], t) {
		d.null(n.line)
		return
	}
	if t.Kind() == reflect.Pointer {
		if n.kind == nodeNull {
			v.SetZero()
			return
		}
		v.Set(reflect.New(t.Elem()))
		d.value(n, v.Elem())
		if e := v.Elem(); e.Kind() == reflect.Slice && e.IsNil() && n.kind == nodeList {
			e.Set(reflect.MakeSlice(e.Type(), 0, 0)) // who points to a list tells an empty one from none
		}
		return
	}
	ti := d.info(t)
	if ti.node {
		v.Addr().Interface().(nodeDecoder).decodeNode(d, n)
		return
	}
	if n.kind == nodeNull {
		return
	}
	if ti.text {
		if n.kind != nodeString {
			d.wrongType(n, "a string")
		} else if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.text)); err != nil {
			d.faultf(n.line, "%s: %v", n.show(), err)
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
			v.Set(reflect.ValueOf(plain(n, goNumber)))
			return
		}
		d.faultf(n.line, "cannot be decoded: %s is not a type of documents", t)
	default:
		d.scalar(n, v)
	}
}

func (d *decoder) structure(n *node, v reflect.Value, ti *typeInfo) {
	if !d.is(n, nodeMapping, "a mapping") {
		return
	}
	for i := range n.pairs {
		p := &n.pairs[i]
		f := ti.find(p.key)
		if f == nil {
			names := make([]string, len(ti.fields))
			for j := range ti.fields {
				names[j] = ti.fields[j].name
			}
			d.unknown(p, names)
			continue
		}
		d.field(p.key)
		known := len(d.faults)
		d.value(p.value, v.FieldByIndex(f.index))
		if f.check != "" && len(d.faults) == known {
			d.bounds(f.check, p.value, v.FieldByIndex(f.index))
		}
		d.pop()
	}
}

// policyFields are those of the spec of a policy.
var policyFields = [...]string{"targetRef", "from", "to", "rules", "default"}

// unknown reports a field that does not exist, with the name or the place that was likely meant.
func (d *decoder) unknown(p *pair, names []string) {
	if d.full() {
		return
	}
	if len(d.path) == 0 {
		names = append(d.top[:len(d.top):len(d.top)], names...)
	}
	d.userField(p.key)
	defer d.pop()
	atTop := len(d.path) == 1 // p.key itself
	switch {
	case atTop && slices.Contains(names, "spec") && slices.Contains(policyFields[:], p.key):
		d.faultf(p.line, "is in the wrong place: it stands below spec")
		return
	case atTop && p.key == "spec" && len(d.top) > 0:
		d.faultf(p.line, "this kind has no spec: its fields stand at the top, beside type; these are %s",
			strings.Join(names, ", "))
		return
	}
	if near := Nearest(p.key, names); near != "" {
		d.faultf(p.line, "unknown field %s: it is not known in the schema of Kuma %s; did you mean %q?",
			quote(p.key), SchemaVersion, near)
		return
	}
	d.faultf(p.line, "unknown field %s: it is not known in the schema of Kuma %s; known here: %s",
		quote(p.key), SchemaVersion, strings.Join(names, ", "))
}

func (d *decoder) mapping(n *node, v reflect.Value) {
	t := v.Type()
	if !d.is(n, nodeMapping, "a mapping") {
		return
	}
	if t.Key().Kind() != reflect.String {
		d.faultf(n.line, "cannot be decoded: the keys of %s are not strings", t)
		return
	}
	if len(n.pairs) == 0 {
		v.SetZero() // absent and empty are one: the canonical form has no empty maps
		return
	}
	if m, ok := v.Addr().Interface().(*map[string]string); ok {
		*m = d.strings(n)
		return
	}
	out := reflect.MakeMapWithSize(t, len(n.pairs))
	for i := range n.pairs {
		p := &n.pairs[i]
		e := reflect.New(t.Elem()).Elem()
		d.key(p.key)
		d.value(p.value, e)
		d.pop()
		out.SetMapIndex(reflect.ValueOf(p.key).Convert(t.Key()), e)
	}
	v.Set(out)
}

// strings decodes the most common map of all, tags and labels, without reflection.
func (d *decoder) strings(n *node) map[string]string {
	if d.share {
		if out := d.sharedTags(n.pairs); out != nil {
			return out
		}
	}
	out := make(map[string]string, len(n.pairs))
	for i := range n.pairs {
		p := &n.pairs[i]
		if p.value.kind != nodeString {
			d.key(p.key)
			d.wrongType(p.value, "a string")
			d.pop()
			continue
		}
		out[p.key] = p.value.text
	}
	return out
}

func (d *decoder) list(n *node, v reflect.Value) {
	t := v.Type()
	if t.Elem().Kind() == reflect.Uint8 {
		d.bytes(n, v)
		return
	}
	if !d.is(n, nodeList, "a list") {
		return
	}
	if len(n.items) == 0 {
		v.SetZero()
		return
	}
	if t == outboundList && d.sharer != nil {
		d.share = true
		defer func() { d.share = false }()
	}
	out := reflect.MakeSlice(t, len(n.items), len(n.items))
	for i, it := range n.items {
		d.index(i)
		if it.kind == nodeNull && !d.info(t.Elem()).node {
			d.faultf(it.line, "the item is empty; give it a value or remove it")
		} else {
			d.value(it, out.Index(i))
		}
		d.pop()
	}
	v.Set(out)
}

func (d *decoder) bytes(n *node, v reflect.Value) {
	if !d.is(n, nodeString, "a string in base64") {
		return
	}
	raw, err := base64.StdEncoding.DecodeString(n.text)
	if err != nil {
		d.faultf(n.line, "%s is not base64 (RFC 4648 section 4): %v", n.show(), err)
		return
	}
	if len(raw) > 0 {
		v.SetBytes(raw)
	}
}

func (d *decoder) scalar(n *node, v reflect.Value) {
	switch k := v.Kind(); k {
	case reflect.String:
		if d.is(n, nodeString, "a string") {
			v.SetString(n.text)
		}
	case reflect.Bool:
		if d.is(n, nodeBool, "a boolean") {
			v.SetBool(n.text == "true")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if !d.is(n, nodeInt, "a whole number") {
			return
		}
		i, err := strconv.ParseInt(n.text, 10, v.Type().Bits())
		if err != nil {
			d.faultf(n.line, "%s is out of range: a whole number of %d bits is wanted", n.show(), v.Type().Bits())
			return
		}
		v.SetInt(i)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if !d.is(n, nodeInt, "a whole number") {
			return
		}
		u, err := strconv.ParseUint(n.text, 10, v.Type().Bits())
		if err != nil {
			d.faultf(n.line, "%s is out of range: a whole number from 0 to %d is wanted",
				n.show(), ^uint64(0)>>(64-v.Type().Bits()))
			return
		}
		v.SetUint(u)
	case reflect.Float32, reflect.Float64:
		if n.kind != nodeInt && n.kind != nodeFloat {
			d.wrongType(n, "a number")
			return
		}
		f, err := strconv.ParseFloat(n.text, v.Type().Bits())
		if err != nil {
			d.faultf(n.line, "%s is out of range of a %d-bit float", n.show(), v.Type().Bits())
			return
		}
		v.SetFloat(f)
	default:
		d.faultf(n.line, "cannot be decoded: %s is not a type of documents", v.Type())
	}
}
