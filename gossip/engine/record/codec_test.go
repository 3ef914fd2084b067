package record

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

// sample returns a version and its deletion.
func sample(t testing.TB) []*Record {
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
	return []*Record{a, b}
}

func sampleManifest(t testing.TB) *Manifest {
	t.Helper()
	m, err := Manifest{Node: NodeID{9}, Name: "node-9", Order: MakeOrder(17, 3), Entries: []Entry{
		{Key: Key{Kind: "Dataplane", Mesh: "default", Name: "web-1"}, Hash: HashBody([]byte("one"))},
		{Key: Key{Kind: "Dataplane", Mesh: "default", Name: "api-1"}, Hash: HashBody(nil)}}}.Seal(nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestUnknownFieldsAreKept checks that a record of a later version is forwarded unchanged, and that
// unknown fields are part of its digest.
func TestUnknownFieldsAreKept(t *testing.T) {
	r := sample(t)[0]
	content, _, err := split("record", r.Encoded(), MaxRecord)
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
	signed := wire.AppendText(bytes.Clone(sample(t)[0].raw), envelopeSignature, "signature")
	for _, r := range append(sample(t), mustDecode(t, signed)) {
		around := slices.Concat([]byte("before"), r.Encoded(), []byte("behind"))
		in := mustDecode(t, around[6:6+len(r.Encoded())])
		c := in.Clone().Clone()
		clear(around)
		if want := mustDecode(t, bytes.Clone(r.Encoded())); !reflect.DeepEqual(c, want) {
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
	good := sample(t)[0]
	content, _, err := split("record", good.Encoded(), MaxRecord)
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
		"cut off":            good.Encoded()[:len(good.Encoded())-3],
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
	for _, r := range sample(f) {
		f.Add(r.Encoded())
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
	f.Add(sampleManifest(f).raw)
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

// TestDomainTag checks that the content of a record is not valid as that of a manifest.
func TestDomainTag(t *testing.T) {
	r, err := Record{Key: Key{Kind: "K", Name: "n"}, HLC: 1, Cluster: "c"}.Seal(nil)
	if err != nil || r.Cluster != "c" {
		t.Fatal(err)
	}
	if _, err := (Record{Key: Key{Kind: "K", Name: "n"}, HLC: 1, Cluster: string(make([]byte, MaxCluster+1))}).Seal(
		nil); err == nil {
		t.Error("a long cluster is accepted")
	}
	content, _, _ := split("record", r.Encoded(), MaxRecord)
	content = content[:len(content)-len(appendCluster(nil, recordDomain, recordTag, "c"))]
	content = appendCluster(content, recordDomain, manifestTag, "c")
	if _, err := DecodeRecord(wire.AppendBytes(nil, envelopeContent, content)); err == nil {
		t.Error("a record with another domain tag is accepted")
	}
}
