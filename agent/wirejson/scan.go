package wirejson

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var (
	errFieldNumber = errors.New("the bytes are no message: there is a field number out of range")
	errUTF8        = errors.New("the text is not UTF-8")
)

// found is one value of a field, or several that are packed.
type found struct {
	field  *field
	number uint64 // see number
	body   []byte // of a text, bytes, a message, or packed values
	packed bool
}

func (o *found) isZero() bool { return o.number == 0 && len(o.body) == 0 }

// scan is what was noticed about the order of values while they were found.
type scan struct {
	base     int // index of the first value
	oneofs   uint64
	unsorted bool
	contest  bool // a oneof may have been set more than once
}

// open puts what it finds in the parts of a message on the stack, in the order in which it is rendered, and returns
// the index of the first.
func (r *Renderer) open(m *message, lo, hi, depth int) (int, error) {
	if depth > maxDepth {
		return 0, errDepth
	}
	s := scan{base: len(r.stack)}
	for i := lo; i < hi; i++ {
		if err := r.scan(m, r.stack[i].body, &s); err != nil {
			return 0, err
		}
	}
	if s.contest {
		if err := r.decide(s.base, depth); err != nil {
			return 0, err
		}
	}
	if s.unsorted {
		slices.SortStableFunc(r.stack[s.base:], func(a, b found) int { return compare(a.field, b.field) })
	}
	return s.base, nil
}

// scan puts the values in b on the stack.
func (r *Renderer) scan(m *message, b []byte, s *scan) error {
	for len(b) > 0 {
		tag, n := uint64(b[0]), 1
		if tag >= 0x80 {
			if tag, n = protowire.ConsumeVarint(b); n < 0 {
				return malformed(n)
			}
		}
		b = b[n:]
		num := protowire.Number(tag >> 3)
		if tag>>3 < uint64(protowire.MinValidNumber) || tag>>3 > uint64(protowire.MaxValidNumber) {
			return errFieldNumber
		}
		f := r.field(m, num)
		o := found{field: f}
		switch typ := protowire.Type(tag & 7); {
		case typ == protowire.BytesType && (f.wire == typ || f.packable):
			if o.body, n = protowire.ConsumeBytes(b); n < 0 {
				return within(f, malformed(n))
			}
			b = b[n:]
			switch {
			case f.packable:
				o.packed = true
				if err := checkPacked(f, o.body); err != nil {
					return within(f, err)
				}
			case f.kind == protoreflect.StringKind && f.utf8 && !utf8.Valid(o.body):
				return within(f, errUTF8)
			}
		case typ != f.wire: // not known, or not as it is declared: then it counts as not known
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return malformed(n)
			}
			b = b[n:]
			continue
		case typ == protowire.StartGroupType:
			if o.body, n = protowire.ConsumeGroup(num, b); n < 0 {
				return within(f, malformed(n))
			}
			b = b[n:]
		default:
			var err error
			if o.number, b, err = number(f, typ, b); err != nil {
				return within(f, err)
			}
		}
		s.notice(r.stack, f)
		r.stack = append(r.stack, o)
	}
	return nil
}

// notice compares a field with what lies on the stack already.
func (s *scan) notice(stack []found, f *field) {
	if len(stack) > s.base {
		last := stack[len(stack)-1].field
		if last == f {
			return
		}
		s.unsorted = s.unsorted || compare(last, f) > 0
	}
	if f.oneof > 0 {
		bit := uint64(1) << (f.oneof & 63)
		s.contest = s.contest || s.oneofs&bit != 0
		s.oneofs |= bit
	}
}

// decide drops the values that lost their oneof to a later one. A message that comes again after another member was set
// begins anew.
func (r *Renderer) decide(base, depth int) error {
	type state struct {
		winner *field
		done   bool // what is before has lost
	}
	states := map[int]state{}
	lost := func(f *field) bool {
		if f.oneof == 0 {
			return false
		}
		s := states[f.oneof]
		if s.winner == nil {
			s.winner = f
		}
		s.done = s.done || s.winner != f
		states[f.oneof] = s
		return s.done
	}
	keep := len(r.stack)
	for i := len(r.stack) - 1; i >= base; i-- {
		if o := r.stack[i]; !lost(o.field) {
			keep--
			r.stack[keep] = o
		} else if err := r.check(o.field, o.body, depth+1); err != nil {
			return within(o.field, err)
		}
	}
	r.stack = slices.Delete(r.stack, base, keep)
	return nil
}

// check goes through the value of a field that is not rendered: what proto.Unmarshal would refuse is an error.
func (r *Renderer) check(f *field, body []byte, depth int) error {
	if f.message == nil {
		return nil // was looked at when it was found
	}
	if depth > maxDepth {
		return errDepth
	}
	s := scan{base: len(r.stack)}
	if err := r.scan(f.message, body, &s); err != nil {
		return err
	}
	for i := s.base; i < len(r.stack); i++ {
		if o := r.stack[i]; o.field.message != nil {
			if err := r.check(o.field, o.body, depth+1); err != nil {
				return within(o.field, err)
			}
		}
	}
	r.stack = r.stack[:s.base]
	return nil
}

func checkPacked(f *field, b []byte) (err error) {
	for len(b) > 0 && err == nil {
		_, b, err = number(f, f.wire, b)
	}
	return err
}

// number reads a number, bool or enum, and returns what follows it. Signed numbers are extended to 64 bits, of floating
// ones it is the bits.
func number(f *field, typ protowire.Type, b []byte) (uint64, []byte, error) {
	var v uint64
	var n int
	switch typ {
	case protowire.Fixed32Type:
		var w uint32
		w, n = protowire.ConsumeFixed32(b)
		v = uint64(w)
	case protowire.Fixed64Type:
		v, n = protowire.ConsumeFixed64(b)
	default:
		v, n = protowire.ConsumeVarint(b)
	}
	if n < 0 {
		return 0, nil, malformed(n)
	}
	switch f.kind {
	case protoreflect.BoolKind:
		v = protowire.EncodeBool(protowire.DecodeBool(v))
	case protoreflect.Int32Kind, protoreflect.EnumKind, protoreflect.Sfixed32Kind:
		v = uint64(int64(int32(v)))
	case protoreflect.Uint32Kind:
		v = uint64(uint32(v))
	case protoreflect.Sint32Kind:
		v = uint64(int64(int32(protowire.DecodeZigZag(v & 0xffffffff))))
	case protoreflect.Sint64Kind:
		v = uint64(protowire.DecodeZigZag(v))
	}
	return v, b[n:], nil
}

func malformed(n int) error {
	return fmt.Errorf("the bytes are no message: %w", protowire.ParseError(n))
}
