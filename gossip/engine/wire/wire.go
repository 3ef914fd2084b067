// Package wire encodes and decodes numbered fields in the format of Protocol Buffers, with a unique
// encoding of each value, so encoded content can be hashed and signed.
package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is a decoded field of an encoded message: bytes, or a number.
type Field struct {
	Num   protowire.Number
	bytes []byte
	value uint64
	typ   protowire.Type
}

// Walk calls visit for each field. Field numbers must be ascending, and only repeated fields may
// occur twice, so signed content has a unique encoding. visit must ignore unknown fields, because
// later versions add some.
func Walk(what string, b []byte, repeats func(protowire.Number) bool, visit func(Field) error) error {
	var last protowire.Number
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%s: a field is truncated", what)
		}
		if num < last || num == last && !repeats(num) {
			return fmt.Errorf("%s: field %d comes after field %d", what, num, last)
		}
		last = num
		b = b[n:]
		f := Field{Num: num, typ: typ}
		switch typ {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			return fmt.Errorf("%s: field %d has wire type %d, which is not used here", what, num, typ)
		}
		if n < 0 {
			return fmt.Errorf("%s: field %d is truncated", what, num)
		}
		b = b[n:]
		if err := visit(f); err != nil {
			return fmt.Errorf("%s: field %d: %w", what, num, err)
		}
	}
	return nil
}

// Never reports that no field may be repeated.
func Never(protowire.Number) bool { return false }

// Take returns the value of a bytes field of at most limit bytes.
func (f Field) Take(limit int) ([]byte, error) {
	if f.typ != protowire.BytesType {
		return nil, fmt.Errorf("has wire type %d, not bytes", f.typ)
	}
	if len(f.bytes) > limit {
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(f.bytes), limit)
	}
	return f.bytes, nil
}

// Number returns the value of a numeric field.
func (f Field) Number() (uint64, error) {
	if f.typ == protowire.BytesType {
		return 0, errors.New("holds bytes, not a number")
	}
	return f.value, nil
}

// Flag returns the value of a numeric field as a boolean.
func (f Field) Flag() (bool, error) {
	n, err := f.Number()
	return n != 0, err
}

// Within stores a number from low to high.
func (f Field) Within(to *int, low, high uint64) error {
	n, err := f.Number()
	if err == nil && (n < low || n > high) {
		err = fmt.Errorf("is %d, %d to %d are allowed", n, low, high)
	}
	*to = int(min(n, high))
	return err
}

// Text stores the value of a bytes field in a string.
func (f Field) Text(to *string, limit int) error {
	b, err := f.Take(limit)
	*to = string(b)
	return err
}

// Tag requires a text.
func (f Field) Tag(want string) error {
	if string(f.bytes) != want {
		return fmt.Errorf("is %.40q, %q is required", f.bytes, want)
	}
	return nil
}

// Hash stores a 16-byte value.
func (f Field) Hash(to *[16]byte) error {
	b, err := f.Take(16)
	if err != nil {
		return err
	}
	if len(b) != 16 {
		return fmt.Errorf("has %d bytes, 16 are required", len(b))
	}
	*to = [16]byte(b)
	return nil
}

func AppendBytes(b []byte, num protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func AppendText(b []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func AppendFixed(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), v)
}

func AppendVarint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func AppendFlag(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return AppendVarint(b, num, 1)
}
