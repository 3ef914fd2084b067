package logfields

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
	"github.com/nearside-mesh/nearside/agent/compute/substitution"
)

// Options has the formats that may have written the lines of a file.
type Options struct {
	// Templates may contain Placeholders, which are replaced by names or addresses before Envoy reads
	// the format.
	Templates    []logline.Format
	Placeholders []string
	// Formats are those of loggers, without placeholders. One that a template may have become adds
	// nothing. Others that differ only in words are read as one, and the first of these words is the
	// service.
	Formats []logline.Format
	Fields  []Field
}

// Formats reads fields from the lines of some formats. It is safe for concurrent use.
type Formats struct {
	fields []Field
	text   []*layout
	json   []*object
	known  map[string][]int // fields of JSON lines without a known format, by key
	// Reasons explains, once each, why fields cannot be read from some formats.
	Reasons []string
}

// object is a compiled JSON format.
type object struct {
	index  map[string]int // by key
	member []*layout      // by index; nil: not read
	value  []string       // by index: the constant text of a field, if it has no operator
	fixed  []bool
	reads  []int  // by field: index of the member with its value, or -1
	hides  []bool // by field: clients can shift its value
}

// New compiles formats for some fields. Formats that cannot be read are left out, with a reason.
func New(o Options) *Formats {
	f := &Formats{fields: o.Fields, known: map[string][]int{}}
	for i := range o.Fields {
		for _, key := range o.Fields[i].keys {
			f.known[key] = append(f.known[key], i)
		}
	}
	var covers []*layout
	for i := range o.Templates {
		fields, err := o.Templates[i].Segments(o.Placeholders...)
		if err != nil {
			f.reason(err.Error())
			continue
		}
		if f.add(&o.Templates[i], fields) && o.Templates[i].JSON == nil {
			covers = append(covers, cover(fields[""]))
		}
	}
	var rest []logline.Format
	x := &scratch{}
	for i := range o.Formats {
		text := bytes.TrimSuffix([]byte(o.Formats[i].Text), []byte("\n"))
		if o.Formats[i].JSON != nil || !slices.ContainsFunc(covers, func(l *layout) bool { return l.read(text, x) }) {
			rest = append(rest, o.Formats[i])
		}
	}
	families, faults := logline.Families(rest)
	for _, err := range faults {
		if err != nil {
			f.reason(err.Error())
		}
	}
	for _, x := range families {
		f.add(&rest[x.Members[0]], x.Segments())
	}
	return f
}

// cover returns a layout that reads the formats that a template becomes.
func cover(format []substitution.Segment) *layout {
	format = slices.Clone(format)
	for i := range format {
		if s := &format[i]; !s.Placeholder {
			*s = substitution.Segment{Text: s.Raw, Raw: s.Raw, Length: -1}
		}
	}
	return newLayout(format, nil)
}

// add compiles a format. It returns false if its lines cannot be read.
func (f *Formats) add(format *logline.Format, fields map[string][]substitution.Segment) bool {
	if op := format.Forgeable(); op != "" {
		f.reason("a text format has " + clip.Value(op) + ", with which clients can forge lines")
		return false
	}
	if format.JSON == nil {
		l := newLayout(fields[""], f.fields)
		f.hidden(l, "")
		f.text = append(f.text, l)
		return true
	}
	o := &object{index: map[string]int{}}
	for _, key := range slices.Sorted(maps.Keys(format.JSON)) {
		o.index[key] = len(o.member)
		segs, text := fields[key]
		constant := text && !slices.ContainsFunc(segs, func(s substitution.Segment) bool { return s.Operator != "" })
		var l *layout
		value := ""
		switch {
		case constant:
			for _, s := range segs {
				value += s.Text
			}
		case text:
			l = newLayout(segs, f.fields)
			f.hidden(l, fmt.Sprintf("field %q: ", clip.Value(key)))
		}
		o.member, o.value, o.fixed = append(o.member, l), append(o.value, value), append(o.fixed, constant)
	}
	for i := range f.fields {
		reads, hides := -1, false
		for at, l := range o.member {
			if l == nil || l.wanted[i].at < 0 {
				continue
			}
			if hides = hides || l.wanted[i].hidden; reads < 0 && !l.wanted[i].hidden {
				reads = at
			}
		}
		o.reads, o.hides = append(o.reads, reads), append(o.hides, hides)
	}
	f.json = append(f.json, o)
	return true
}

// hidden adds the reasons for the fields that a layout hides.
func (f *Formats) hidden(l *layout, where string) {
	for i, t := range l.wanted {
		if t.hidden {
			f.reason(fmt.Sprintf("%sthe format is ambiguous: clients can shift the value of %s", where,
				clip.Value(f.fields[i].Name)))
		}
	}
}

// maxReasons limits the reasons of a file.
const maxReasons = 8

func (f *Formats) reason(text string) {
	if len(f.Reasons) < maxReasons && !slices.Contains(f.Reasons, text) {
		f.Reasons = append(f.Reasons, text)
	}
}

// Value is the value of a field in a line.
type Value struct {
	Text  []byte // valid until the next line is read
	State State
}

// Reader reads lines. It is for one goroutine.
type Reader struct {
	f       *Formats
	values  []Value
	set     []bool // by field: a format has decided the value
	scratch scratch
	raw     [][]byte // values of a JSON line, by index of an object
	rank    []int    // by field: index of its key
}

// NewReader returns a reader for the formats.
func (f *Formats) NewReader() *Reader {
	n := len(f.fields)
	return &Reader{f: f, values: make([]Value, n), set: make([]bool, n), rank: make([]int, n)}
}

// Values returns the values of the last line.
func (r *Reader) Values() []Value { return r.values }

// Read returns the values of the fields, in the order of [Options.Fields]. They are valid until the
// next call. "-" is the value of operators without a value.
func (r *Reader) Read(line []byte) []Value {
	clear(r.values)
	clear(r.set)
	if i := space(line, 0); i < len(line) && line[i] == '{' && r.object(line) {
		return r.values
	}
	for _, l := range r.f.text {
		if !l.read(line, &r.scratch) {
			continue
		}
		for i := range r.values {
			text, state := l.value(i, line, &r.scratch)
			r.merge(i, text, state)
		}
	}
	return r.values
}

// merge adds the value that one format gives to a field. Formats that contradict each other make it
// unsure.
func (r *Reader) merge(i int, text []byte, state State) {
	v := &r.values[i]
	switch {
	case state == Absent:
	case state == Hidden:
		if !r.set[i] {
			v.State = Hidden
		}
	case !r.set[i]:
		r.set[i] = true
		*v = Value{text, state}
	case state != v.State || !bytes.Equal(text, v.Text):
		*v = Value{nil, Unsure}
	}
}

// object reads a JSON line. It returns false if the line is not a JSON object.
func (r *Reader) object(line []byte) bool {
	for _, o := range r.f.json {
		r.member(o, line)
	}
	if !slices.Contains(r.set, false) {
		return true
	}
	for i := range r.rank {
		r.rank[i] = -1
	}
	if members(line, func(key, raw []byte) bool {
		for _, i := range r.f.known[string(key)] {
			if !r.set[i] {
				r.usual(i, key, raw)
			}
		}
		return true
	}) {
		return true
	}
	clear(r.values)
	clear(r.set)
	return false
}

// usual takes the value of a key of a JSON line without a known format. A field with several keys
// has the value of the first one in its list, or no value if all must agree and do not.
func (r *Reader) usual(i int, key, raw []byte) {
	f, v := &r.f.fields[i], &r.values[i]
	text, there, ok := plain(raw)
	next := Value{text, Known}
	switch {
	case f.all && (!ok || !there), !ok && raw[0] == '"':
		next = Value{nil, Unsure}
	case !ok:
		next.Text = raw // a truth value, an object, or a list
	}
	rank := slices.Index(f.keys, string(key))
	switch {
	case r.rank[i] < 0, !f.all && rank <= r.rank[i]:
		*v, r.rank[i] = next, rank
	case f.all && (v.State != next.State || !bytes.Equal(v.Text, next.Text)):
		*v = Value{nil, Unsure}
	}
}

// member reads a line of a known JSON format.
func (r *Reader) member(o *object, line []byte) {
	if cap(r.raw) < len(o.member) {
		r.raw = make([][]byte, len(o.member))
	}
	r.raw = r.raw[:len(o.member)]
	clear(r.raw)
	if !members(line, func(key, raw []byte) bool {
		i, ok := o.index[string(key)]
		if !ok {
			return false
		}
		if o.fixed[i] {
			text, there, ok := plain(raw)
			return ok && (!there || string(text) == o.value[i])
		}
		r.raw[i] = raw
		return true
	}) {
		return
	}
	for i := range r.values {
		at := o.reads[i]
		if r.f.fields[i].own {
			continue
		}
		if at < 0 {
			if o.hides[i] {
				r.merge(i, nil, Hidden)
			}
			continue
		}
		text, there, ok := plain(r.raw[at])
		switch {
		case !there: // Envoy omits a field without a value, or writes null
			r.merge(i, nil, Known)
		case !ok, !o.member[at].read(text, &r.scratch):
			r.merge(i, nil, Unsure)
		default:
			value, state := o.member[at].value(i, text, &r.scratch)
			r.merge(i, value, state)
		}
	}
}
