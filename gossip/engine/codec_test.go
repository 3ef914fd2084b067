package engine

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/gossip/engine/ident"
	"github.com/nearside-mesh/nearside/gossip/engine/sumtree"
	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

func sample(t testing.TB) *message {
	t.Helper()
	key := Key{Kind: "MeshTimeout", Mesh: "default", Name: "web"}
	a, err := successor(key, nil, 7<<16, Writer{1}, false, "application/json", []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	b, err := successor(key, a, 8<<16, Writer{2}, true, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Manifest{Node: NodeID{9}, Name: "node-9", Order: makeOrder(17, 3), Entries: []Entry{
		{Key{Kind: "Dataplane", Mesh: "default", Name: "web-1"}, HashBody([]byte("one"))},
		{Key{Kind: "Dataplane", Mesh: "default", Name: "api-1"}, HashBody(nil)}}}.seal(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &message{From: "node", Agreed: 5, Have: []Head{a.head(), m.head()}, Want: []Slot{a.Key.Slot()},
		WantBody: []BodyHash{HashBody(nil)},
		Request:  3, Reply: 4, Last: true, Stream: true,
		Sums:   []Sums{{Prefix: Prefix{Depth: 1, Bits: 0xa << 60}, Parts: [16]uint64{1, 2, 3}}},
		Leaves: []Leaves{{Prefix: Prefix{Depth: 2, Bits: 0xab << 56}, Heads: []Head{b.head()}}, {}}, Records: []*Record{a, b},
		Manifests: []*Manifest{m},
		Bodies:    [][]byte{[]byte("one"), {}}}
}

func TestMessageRoundTrip(t *testing.T) {
	want := sample(t)
	got, err := decodeMessage(want.encode())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.encode(), want.encode()) {
		t.Error("decoding and encoding changed the message")
	}
	got.Leaves[1].Heads, got.Bodies[1] = nil, []byte{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestUnknownFieldsAreKept checks that a record of a later version is forwarded unchanged, and that
// unknown fields are part of its digest.
func TestUnknownFieldsAreKept(t *testing.T) {
	r := sample(t).Records[0]
	content, _, err := split("record", r.raw, MaxRecord)
	if err != nil {
		t.Fatal(err)
	}
	content = wire.AppendText(bytes.Clone(content), 200, "of a later version")
	raw := wire.AppendText(wire.AppendBytes(nil, envelopeContent, content), 77, "beside it")
	got, err := DecodeRecord(raw)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Encoded(), raw) || got.Key != r.Key || got.digest == r.digest {
		t.Error("unknown fields are lost or missing in the digest")
	}
}

// TestCloneLeavesTheMessage checks that a clone equals its record and does not share memory with
// the message.
func TestCloneLeavesTheMessage(t *testing.T) {
	signed := wire.AppendText(bytes.Clone(sample(t).Records[0].raw), envelopeSignature, "signature")
	for _, r := range append(sample(t).Records, mustDecode(t, signed)) {
		around := slices.Concat([]byte("before"), r.raw, []byte("behind"))
		in := mustDecode(t, around[6:6+len(r.raw)])
		c := in.clone().clone()
		clear(around)
		if want := mustDecode(t, bytes.Clone(r.raw)); !reflect.DeepEqual(c, want) {
			t.Errorf("got %+v\nwant %+v", c, want)
		}
	}
}

func mustDecode(t *testing.T, raw []byte) *Record {
	t.Helper()
	r, err := DecodeRecord(raw)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDecodingRefuses(t *testing.T) {
	good := sample(t).Records[0]
	content, _, err := split("record", good.raw, MaxRecord)
	if err != nil {
		t.Fatal(err)
	}
	envelope := func(content []byte) []byte { return wire.AppendBytes(nil, envelopeContent, content) }
	twice := wire.AppendText(bytes.Clone(content), recordBody, "again")
	for name, raw := range map[string][]byte{
		"empty":              nil,
		"no content":         wire.AppendText(nil, envelopeSignature, "s"),
		"field twice":        envelope(twice),
		"fields out of turn": envelope(append(wire.AppendText(nil, recordBody, "b"), content...)),
		"cut off":            good.raw[:len(good.raw)-3],
		"too large":          envelope(wire.AppendText(bytes.Clone(content), 99, strings.Repeat("x", MaxRecord))),
		"group":              envelope(protowire.AppendTag(nil, 3, protowire.StartGroupType)),
		"no hlc":             envelope(wire.AppendText(wire.AppendText(nil, recordKind, "K"), recordName, "n")),
		"control characters": envelope(
			wire.AppendFixed(wire.AppendText(wire.AppendText(nil, recordKind, "K"), recordName, "n\n"), recordHLC, 1)),
		"tombstone and body": envelope(
			wire.AppendText(wire.AppendFlag(wire.AppendFixed(wire.AppendText(wire.AppendText(nil, recordKind, "K"), recordName,
				"n"), recordHLC, 1), recordDeleted, true), recordBody, "b")),
	} {
		if _, err := DecodeRecord(raw); err == nil {
			t.Errorf("%s: decoded", name)
		} else if strings.Contains(err.Error(), "%!") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRecord(f *testing.F) {
	for _, r := range sample(f).Records {
		f.Add(r.raw)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			return
		}
		decoded, err := DecodeRecord(r.Encoded())
		if err != nil || decoded.Version() != r.Version() || !bytes.Equal(decoded.Encoded(), b) {
			t.Errorf("encoding and decoding changed the record: %v", err)
		}
		if w, _, rel := Merge(r, decoded); w.Version() != r.Version() || rel != Superseded {
			t.Error("a record is in conflict with itself")
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add(sample(f).Manifests[0].raw)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeManifest(b)
		if err != nil {
			return
		}
		if decoded, err := DecodeManifest(m.Encoded()); err != nil || decoded.Version() != m.Version() {
			t.Errorf("encoding and decoding changed the manifest: %v", err)
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add(sample(f).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		once := m.encode()
		if m, err = decodeMessage(once); err != nil || !bytes.Equal(m.encode(), once) {
			t.Errorf("encoding and decoding changed the message: %v", err)
		}
	})
}

// FuzzReceive checks that no message can break an engine.
func FuzzReceive(f *testing.F) {
	f.Add(sample(f).encode(), sample(f).encode())
	f.Fuzz(func(t *testing.T, a, b []byte) {
		e, _ := New(Config{Self: NodeID{1}, Member: "self", Random: func(n int) int { return n - 1 }}, at(simStart), nil)
		e.Step(at(simStart), PeerUp{Member: "node", Node: NodeID{2}, Features: 0})
		for i, data := range [][]byte{a, b, a} {
			e.Step(at(simStart.Add(time.Duration(i)*time.Second)), Received{bytes.Clone(data)})
			e.Step(at(simStart.Add(time.Duration(i)*time.Second)), Acked{"node", data, 0})
		}
		if e.tree.Sum != rebuilt(e) {
			t.Error("the tree does not match the entries")
		}
	})
}

func TestTreeSumsWhatItHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr sumtree.Tree[Head]
		held := map[Slot]Head{}
		for range rapid.IntRange(0, 300).Draw(t, "changes") {
			// Few bits, half of them shared, so subtrees split and merge.
			n := rapid.IntRange(0, 120).Draw(t, "slot")
			slot := ident.Sum("test", []byte{byte(n)})
			if n%2 == 0 {
				slot[0], slot[1], slot[2] = 1, 2, 3
			}
			if old, ok := held[slot]; ok {
				tr.Drop(old)
				delete(held, slot)
				if rapid.Bool().Draw(t, "gone") {
					continue
				}
			}
			h := Head{Slot: slot, Version: Version{Order: uint64(rapid.IntRange(1, 3).Draw(t, "order")), Digest: Hash{1}}}
			tr.Put(h)
			held[slot] = h
		}
		// A tree that was filled in another order has the same sums everywhere.
		var fresh sumtree.Tree[Head]
		for _, h := range held {
			fresh.Put(h)
		}
		for _, p := range []Prefix{
			{}, {Depth: 1, Bits: 0}, {Depth: 2, Bits: 0x01 << 56}, {Depth: 3, Bits: 0x010 << 52},
			{Depth: 6, Bits: 0x010203 << 40}, {Depth: 7, Bits: 0x0102030 << 36},
		} {
			a, an := tr.Sums(p)
			b, bn := fresh.Sums(p)
			if a != b || an != bn {
				t.Fatalf("sums below %v differ", p)
			}
			if x, y := tr.At(p), fresh.At(p); !reflect.DeepEqual(x, y) && len(x)+len(y) > 0 {
				t.Fatalf("heads below %v differ: %d, %d", p, len(x), len(y))
			}
		}
		if tr.Sum != fresh.Sum || tr.Count != len(held) || len(tr.At(Prefix{})) != len(held) {
			t.Fatal("the sum of the tree does not match its heads")
		}
	})
}
