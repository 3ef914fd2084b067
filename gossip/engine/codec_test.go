package engine

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/gossip/engine/ident"
	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sumtree"
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
	m, err := Manifest{Node: NodeID{9}, Name: "node-9", Order: record.MakeOrder(17, 3), Entries: []Entry{
		{Key: Key{Kind: "Dataplane", Mesh: "default", Name: "web-1"}, Hash: HashBody([]byte("one"))},
		{Key: Key{Kind: "Dataplane", Mesh: "default", Name: "api-1"}, Hash: HashBody(nil)}}}.Seal(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &message{From: "node", Agreed: 5, Have: []Head{a.Head(), m.Head()}, Want: []Slot{a.Key.Slot()},
		WantBody: []BodyHash{HashBody(nil)},
		Request:  3, Reply: 4, Last: true, Stream: true,
		Sums:   []Sums{{Prefix: Prefix{Depth: 1, Bits: 0xa << 60}, Parts: [16]uint64{1, 2, 3}}},
		Leaves: []Leaves{{Prefix: Prefix{Depth: 2, Bits: 0xab << 56}, Heads: []Head{b.Head()}}, {}}, Records: []*Record{a, b},
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

// fuzzPolicy excludes some entries.
type fuzzPolicy struct{}

func (fuzzPolicy) Record(r *Record) string {
	if len(r.Body)%2 == 1 {
		return "an odd number of bytes"
	}
	return ""
}

func (fuzzPolicy) Manifest(m *Manifest) string {
	if len(m.Entries)%2 == 1 {
		return "an odd number of entries"
	}
	return ""
}

// FuzzReceive checks that no message can break an engine.
func FuzzReceive(f *testing.F) {
	f.Add(sample(f).encode(), sample(f).encode())
	r := signed(f, testKey(2), newKey, "body")
	m := manifestOf(f, nodeOf(testKey(2)), 1_800_000_000, testKey(2))
	f.Add((&message{From: "node", Records: []*Record{r}, Manifests: []*Manifest{m},
		Bodies: [][]byte{[]byte("evil")}}).encode(),
		(&message{From: "node", Manifests: []*Manifest{mark(f, m.Node, 1_800_000_000, testKey(3))}}).encode())
	f.Fuzz(func(t *testing.T, a, b []byte) {
		e, _ := New(Config{Self: nodeOf(testKey(1)), Member: "self", Random: func(n int) int { return n - 1 },
			Signer: testKey(1), Policy: fuzzPolicy{}}, at(simStart), nil)
		e.Step(at(simStart), PeerUp{Member: "node", Node: NodeID{2}, Features: 0})
		for i, data := range [][]byte{a, b, a} {
			e.Step(at(simStart.Add(time.Duration(i)*time.Second)), Received{bytes.Clone(data)})
			e.Step(at(simStart.Add(time.Duration(i)*time.Second)), Acked{"node", data, 0})
			e.Step(at(simStart.Add(time.Duration(i)*time.Second)), Reconsider{})
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

// successor returns a version with the given clock.
func successor(key Key, parent *Record, hlc HLC, w Writer, deleted bool, mediaType string,
	body []byte) (*Record, error) {
	return Record{Key: key, HLC: hlc, Writer: w, Deleted: deleted, MediaType: mediaType, Body: body}.After(parent, nil)
}
