package record

import (
	"bytes"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

func testKey(n byte) sign.Signer {
	return sign.Key(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize)))
}

func nodeOf(s sign.Signer) NodeID { return NodeID(sign.Fingerprint(s.Public())) }

// signed returns a first version of a key as a node with a signer writes it.
func signed(t testing.TB, s sign.Signer, k Key, body string) *Record {
	t.Helper()
	r, err := Successor(time.UnixMilli(1_800_000_000_000), nil, Put{Key: k, Body: []byte(body)},
		Origin{Node: nodeOf(s), Cluster: "here", Signer: s})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecordSignature(t *testing.T) {
	k := Key{Kind: "K", Mesh: "m", Name: "n"}
	r := signed(t, testKey(1), k, "body")
	if r.Signer() != sign.Fingerprint(testKey(1).Public()) || r.SigningKey != r.Signer() {
		t.Errorf("signer %s", r.Signer())
	}
	d := mustDecode(t, bytes.Clone(r.Encoded()))
	if d.Signer() != (sign.ID{}) {
		t.Error("a record is verified before Verify")
	}
	if err := d.Verify(); err != nil || d.Signer() != r.Signer() || d.Version() != r.Version() {
		t.Errorf("signer %s, %v", d.Signer(), err)
	}
	if l, err := LoadRecord(r.Encoded()); err != nil || l.Signer() != r.Signer() {
		t.Errorf("loaded: %v", err)
	}
	content, signature, err := split("record", r.Encoded(), MaxRecord)
	if err != nil {
		t.Fatal(err)
	}
	resigned, err := sign.Make(testKey(2), recordSignature, content)
	if err != nil {
		t.Fatal(err)
	}
	domain, err := sign.Make(testKey(1), manifestSignature, content)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(content, []byte("body"), []byte("evil"), 1)
	for name, raw := range map[string][]byte{
		"removed":      envelope(content, nil),
		"truncated":    envelope(content, signature[:sign.Size-1]),
		"re-signed":    envelope(content, resigned),
		"other domain": envelope(content, domain),
		"forged":       envelope(changed, signature),
		"appended":     envelope(wire.AppendText(bytes.Clone(content), 99, "more"), signature),
	} {
		x := mustDecode(t, raw)
		if x.Verify() == nil || x.Signer() != (sign.ID{}) {
			t.Errorf("%s: the record is valid", name)
		}
	}
}
