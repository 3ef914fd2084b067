package redact_test

import (
	"bytes"
	"encoding/base64"
	"hash/crc32"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/redact"
)

// some hides some fields and shows some fields inside them.
func some(fd protoreflect.FieldDescriptor) redact.Secrecy {
	if fd.FullName().Parent().Parent() == "google.protobuf" {
		return redact.Inherit
	}
	switch crc32.ChecksumIEEE([]byte(fd.FullName())) % 8 {
	case 0:
		return redact.Hide
	case 1:
		return redact.Show
	default:
		return redact.Inherit
	}
}

// conceal changes a message in the way that a renderer hides its values.
func conceal(m protoreflect.Message, secrecy func(protoreflect.FieldDescriptor) redact.Secrecy, hidden bool) {
	fields := m.Descriptor().Fields()
	switch name := m.Descriptor().FullName(); {
	case name == "google.protobuf.Any":
		a := m.Interface().(*anypb.Any)
		if inner, err := anypb.UnmarshalNew(a, proto.UnmarshalOptions{AllowPartial: true}); err == nil {
			conceal(inner.ProtoReflect(), secrecy, hidden)
			a.Value, _ = proto.MarshalOptions{AllowPartial: true}.Marshal(inner)
		}
		return
	case hidden && name == "google.protobuf.FieldMask":
		m.Clear(fields.ByNumber(1))
		return
	case hidden && (name == "google.protobuf.StringValue" || name == "google.protobuf.BytesValue"):
		m.Set(fields.ByNumber(1), hiddenValue(fields.ByNumber(1)))
		return
	case hidden && name == "google.protobuf.Value":
		if fd := m.WhichOneof(m.Descriptor().Oneofs().Get(0)); fd != nil && fd.Message() == nil {
			m.Set(fields.ByName("string_value"), protoreflect.ValueOfString(redact.Redacted))
			return
		}
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		hides := func(fd protoreflect.FieldDescriptor, around bool) bool {
			return map[redact.Secrecy]bool{redact.Hide: true, redact.Show: false, redact.Inherit: around}[secrecy(fd)]
		}
		h := hides(fd, hidden)
		text := fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.BytesKind
		switch {
		case fd.IsMap():
			h = hides(fd.MapValue(), h)
			v.Map().Range(func(k protoreflect.MapKey, mv protoreflect.Value) bool {
				if fd.MapValue().Message() != nil {
					conceal(mv.Message(), secrecy, h)
				} else if h {
					v.Map().Set(k, hiddenValue(fd.MapValue()))
				}
				return true
			})
		case fd.IsList():
			for i := range v.List().Len() {
				if fd.Message() != nil {
					conceal(v.List().Get(i).Message(), secrecy, h)
				} else if h && text {
					v.List().Set(i, hiddenValue(fd))
				}
			}
			if h && fd.Message() == nil && !text {
				m.Clear(fd)
			}
		case fd.Message() != nil:
			conceal(v.Message(), secrecy, h)
		case h && text:
			m.Set(fd, hiddenValue(fd))
		case h:
			m.Clear(fd)
		}
		return true
	})
}

func hiddenValue(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(redact.Redacted)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(redact.Redacted))
	default:
		return fd.Default()
	}
}

// TestSecretsLikeTheLibrary hides fields of random messages and compares the result with concealed
// messages rendered by the library.
func TestSecretsLikeTheLibrary(t *testing.T) {
	r := redact.New(some)
	rendered := 0
	for seed := range uint64(800) {
		rnd := newRandom(seed)
		m := served[int(seed)%len(served)].ProtoReflect().New()
		rnd.fill(m, 6)
		wire, err := proto.Marshal(m.Interface())
		if err != nil {
			t.Fatal(err)
		}
		want, wantErr := reference(m.Type(), wire, func(m protoreflect.Message) { conceal(m, some, false) })
		got, err := r.JSON(m.Type(), wire)
		switch {
		case wantErr != nil: // a value without a JSON form that conceal may have removed
			if err == nil {
				t.Fatalf("seed %d: rendered %s\nthe library says %v", seed, got, wantErr)
			}
		case err != nil || !bytes.Equal(got, want):
			t.Fatalf("seed %d: %v\ngot  %s\nwant %s", seed, err, got, want)
		default:
			rendered++
		}
	}
	if rendered < 300 {
		t.Errorf("only %d messages were rendered", rendered)
	}
}

// TestNothingSecretShows marks all strings of random messages, hides all fields, and searches for
// the mark.
func TestNothingSecretShows(t *testing.T) {
	const mark = "SECRET-"
	hide := func(protoreflect.FieldDescriptor) redact.Secrecy { return redact.Hide }
	var texts func(m protoreflect.Message) int
	texts = func(m protoreflect.Message) int {
		n := 0
		if a, ok := m.Interface().(*anypb.Any); ok {
			if inner, err := anypb.UnmarshalNew(a, proto.UnmarshalOptions{AllowPartial: true}); err == nil {
				n = texts(inner.ProtoReflect())
				a.Value, _ = proto.MarshalOptions{AllowPartial: true}.Marshal(inner)
			}
			return n
		}
		m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case fd.IsMap() && fd.MapValue().Message() != nil:
				v.Map().Range(func(_ protoreflect.MapKey, mv protoreflect.Value) bool { n += texts(mv.Message()); return true })
			case fd.IsList() && fd.Message() != nil:
				for i := range v.List().Len() {
					n += texts(v.List().Get(i).Message())
				}
			case fd.IsMap() || fd.IsList():
			case fd.Message() != nil:
				n += texts(v.Message())
			case fd.Kind() == protoreflect.StringKind:
				m.Set(fd, protoreflect.ValueOfString(mark+v.String()))
				n++
			case fd.Kind() == protoreflect.BytesKind:
				m.Set(fd, protoreflect.ValueOfBytes(append([]byte(mark), v.Bytes()...)))
				n++
			}
			return true
		})
		return n
	}
	marked := 0
	for seed := range uint64(300) {
		rnd := newRandom(seed)
		m := served[int(seed)%len(served)].ProtoReflect().New()
		rnd.fill(m, 6)
		n := texts(m)
		wire, err := proto.Marshal(m.Interface())
		if err != nil {
			t.Fatal(err)
		}
		got, err := redact.New(hide).JSON(m.Type(), wire)
		if err != nil {
			continue
		}
		marked += n
		// In base64, a string that begins with the mark begins with the encoded mark, for each 3
		// bytes.
		if strings.Contains(string(got), mark) ||
			strings.Contains(string(got), base64.StdEncoding.EncodeToString([]byte(mark[:6]))) {
			t.Fatalf("seed %d: %s", seed, got)
		}
	}
	if marked < 500 {
		t.Errorf("only %d texts were marked", marked)
	}
}
