package redact_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/redact"
)

var errPanic = errors.New("the protobuf library panics")

// reference renders a message with the protobuf library. edit may change it before.
func reference(t protoreflect.MessageType, wire []byte, edit func(protoreflect.Message)) (_ []byte, err error) {
	defer func() {
		// The library panics on messages without Go types if a map key is repeated with a wrong
		// wire type.
		if p := recover(); p != nil {
			err = errPanic
		}
	}()
	m := t.New()
	if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(wire, m.Interface()); err != nil {
		return nil, err
	}
	if edit != nil {
		edit(m)
	}
	j, err := protojson.MarshalOptions{AllowPartial: true}.Marshal(m.Interface())
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Compact(&b, j) // the white space of protojson varies
	return b.Bytes(), err
}

// tooDeep is the only error that the library does not return.
const tooDeep = "messages are nested more than 100 deep"

// compare compares a renderer with the library. It returns whether the message has a JSON form.
func compare(t *testing.T, r *redact.Renderer, mt protoreflect.MessageType, wire []byte,
	edit func(protoreflect.Message)) bool {
	t.Helper()
	want, wantErr := reference(mt, wire, edit)
	if wantErr == errPanic {
		return false
	}
	got, err := r.JSON(mt, wire)
	if err != nil && strings.Contains(err.Error(), tooDeep) {
		return false
	}
	name := mt.Descriptor().FullName()
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%s %x:\ngot error     %v\nlibrary says  %v\n%s", name, wire, err, wantErr, want)
	}
	if err != nil {
		return false
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s %x:\ngot  %s\nwant %s", name, wire, got, want)
	}
	return true
}

// TestLikeTheLibrary renders random messages of the served types, and of other types packed in an
// Any, in the encoding of the library and in unusual encodings.
func TestLikeTheLibrary(t *testing.T) {
	rounds := uint64(1200)
	if testing.Short() {
		rounds = 400
	}
	r := redact.New(nil)
	rendered := map[bool]int{}
	for seed := range rounds {
		rnd := newRandom(seed)
		mt := (*anypb.Any)(nil).ProtoReflect().Type()
		wire := rnd.packed(5)
		if i := int(seed) % (len(served) + 1); i < len(served) {
			m := served[i].ProtoReflect().New()
			rnd.fill(m, 6)
			var err error
			if wire, err = proto.Marshal(m.Interface()); err != nil {
				t.Fatal(err)
			}
			mt = m.Type()
		}
		rendered[compare(t, r, mt, wire, nil)]++
		wire = rnd.mangle(mt.Descriptor(), wire, 8)
		rendered[compare(t, r, mt, wire, nil)]++
		if len(wire) > 0 {
			wire[rnd.IntN(len(wire))] ^= 1 << rnd.IntN(8)
		}
		rendered[compare(t, r, mt, wire, nil)]++
	}
	for _, ok := range []bool{true, false} {
		if rendered[ok] < int(rounds)/4 {
			t.Errorf("only %d of %d messages were rendered: %v", rendered[ok], 3*rounds, ok)
		}
	}
	t.Logf("%d messages were rendered, %d were refused", rendered[true], rendered[false])
}

// FuzzJSON renders arbitrary bytes as one of the served types or as an Any.
func FuzzJSON(f *testing.F) {
	types := []protoreflect.MessageType{(*anypb.Any)(nil).ProtoReflect().Type()}
	for _, m := range served {
		types = append(types, m.ProtoReflect().Type())
	}
	for i, mt := range types {
		rnd := newRandom(uint64(i))
		for range 4 {
			m := mt.New()
			rnd.fill(m, 3)
			wire, err := proto.Marshal(m.Interface())
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), wire)
			f.Add(uint8(i), rnd.mangle(mt.Descriptor(), wire, 3))
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, wire []byte) {
		compare(t, redact.New(nil), types[int(i)%len(types)], wire, nil)
	})
}

// TestPartsAreMerged splits a message and joins the parts in each order. The output must not
// change.
func TestPartsAreMerged(t *testing.T) {
	mt := served[1].ProtoReflect().Type()
	m := mt.New()
	newRandom(7).fill(m, 4)
	wire, err := proto.Marshal(m.Interface())
	if err != nil {
		t.Fatal(err)
	}
	want, err := redact.New(nil).JSON(mt, wire)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		groups := map[protowire.Number][]record{}
		var order []protowire.Number
		for _, f := range records(wire) {
			if groups[f.num] == nil {
				order = append(order, f.num)
			}
			groups[f.num] = append(groups[f.num], f)
		}
		rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		var parts []byte
		for _, n := range order {
			parts = append(parts, join(groups[n])...)
		}
		got, err := redact.New(nil).JSON(mt, parts)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%x: %v\ngot  %s\nwant %s", parts, err, got, want)
		}
	}
}
