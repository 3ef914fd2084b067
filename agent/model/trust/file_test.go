package trust_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/trust"
)

// TestFollow checks which trust file may follow another one.
func TestFollow(t *testing.T) {
	s := enforcing(t)
	two := fmt.Sprintf("cluster: c\nversion: 2\nmode: enforce\nthreshold: 2\nroots:\n- {name: a, key: %s}\n"+
		"- {name: b, key: %s}\n- {name: d, key: %s}\n", public("a"), public("b"), public("d"))
	next := strings.Replace(two, "version: 2", "version: 3", 1)
	forged := bytes.Replace(signed(t, document(2, "enforce", ""), "a"), []byte("mode: enforce"), []byte("mode: off"), 1)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"signed by the root":     {signed(t, document(2, "off", ""), "a"), ""},
		"the same again":         {signed(t, document(1, "enforce", ""), "a"), ""},
		"unsigned":               {[]byte(document(2, "off", "")), "signed by 0 of the 1"},
		"signed by another key":  {signed(t, document(2, "off", ""), "mallory"), "signed by 0 of the 1"},
		"signed by an operator":  {signed(t, document(2, "off", ""), "alice"), "signed by 0 of the 1"},
		"changed after signing":  {forged, "does not match"},
		"signed by a new root":   {signed(t, two, "b", "d"), "signed by 0 of the 1"},
		"a lower version":        {signed(t, document(0, "off", ""), "a"), "version"},
		"the version, different": {signed(t, document(1, "off", ""), "a"), "same version"},
		"another cluster": {signed(t, strings.Replace(document(2, "off", ""), "cluster: c", "cluster: d", 1), "a"),
			"cluster d"},
		"truncated": {signed(t, document(2, "off", ""), "a")[:1350], "signature"},
		"empty":     {nil, "empty"},
	} {
		_, err := s.Accept(c.file)
		if c.want != "" {
			wantReason(t, name, fmt.Sprint(err), c.want)
		}
		if (err == nil) != (c.want == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s = accepted(t, s, signed(t, two, "a"))
	for name, c := range map[string]struct {
		roots []string
		ok    bool
	}{"one of two": {[]string{"a"}, false}, "two of three": {[]string{"d", "b"}, true},
		"one twice": {[]string{"a", "a"}, false}, "one and a stranger": {[]string{"a", "mallory"}, false},
		"all": {[]string{"a", "b", "d"}, true}} {
		if _, err := s.Accept(signed(t, next, c.roots...)); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Accept(signed(t, document(1, "enforce", ""), "a")); !errors.Is(err, trust.ErrOlder) {
		t.Errorf("an earlier file: %v", err)
	}
}

// TestFileRecord checks that only a root key can date a trust file, and that it cannot be deleted.
func TestFileRecord(t *testing.T) {
	s := enforcing(t)
	next := string(signed(t, document(2, "off", ""), "a"))
	for name, c := range map[string]struct {
		put  put
		want string
	}{
		"by the root":   {put{name: "trust", body: next, by: "a"}, ""},
		"by a member":   {put{name: "trust", body: next, by: "n1"}, "not signed by a root key"},
		"unsigned":      {put{name: "trust", body: next}, "not signed by a root key"},
		"replayed":      {put{name: "trust", body: string(signed(t, document(1, "off", ""), "a")), by: "a"}, "same version"},
		"another name":  {put{name: "trust2", body: next, by: "a"}, "has the name"},
		"in a mesh":     {put{name: "trust", mesh: "m", body: next, by: "a"}, "no mesh"},
		"deleted":       {put{name: "trust", deleted: true, by: "a"}, "cannot be deleted"},
		"no trust file": {put{name: "trust", body: "{}", by: "a"}, "version"},
	} {
		c.put.kind = trust.KindFile
		wantReason(t, name, s.Record(record(t, c.put)), c.want)
	}
}

// TestDamaged checks that an unreadable trust file is not taken for a missing one.
func TestDamaged(t *testing.T) {
	s := trust.New(trust.Options{Cluster: "c"}).Damaged("it cannot be read")
	if s.Mode() != trust.ModeEnforce {
		t.Errorf("the mode is %s", s.Mode())
	}
	for _, p := range []put{{kind: "MeshTimeout", mesh: "default", name: "x", by: "alice"},
		{kind: trust.KindHeal, name: "01", by: "a"}, {kind: trust.KindEnrollment, name: id("n1"), body: "{}", by: "a"},
		{kind: trust.KindFile, name: "trust", body: string(signed(t, document(1, "off", ""), "a")), by: "a"}} {
		wantReason(t, p.kind, s.Record(record(t, p)), "cannot be read")
	}
	if _, err := s.Accept(signed(t, document(1, "off", ""), "a")); err == nil {
		t.Error("the node accepts the trust file of a peer")
	}
	if _, err := s.Adopt(signed(t, document(1, "off", ""), "a")); err != nil {
		t.Errorf("the operator cannot restore the trust file: %v", err)
	}
}

// TestFaults checks the faults of a document: line, field, and remedy.
func TestFaults(t *testing.T) {
	for in, want := range map[string]string{
		"cluster: c":                               "version: is missing",
		document(1, "on", ""):                      `line 3: mode: "on" is not a mode; use one of off, warn, enforce`,
		document(1, "off", "extra: 1\n"):           `unknown field "extra"`,
		document(1, "off", "mode: off\n"):          "duplicate key",
		document(1, "off", "revoked: [{key: ab}]"): "32 hexadecimal digits",
		strings.Replace(document(1, "off", ""), "threshold: 1", "threshold: 2", 1): "threshold: is 2; give 1 to the number " +
			"of roots, 1",
		strings.Replace(document(1, "off", ""), "role: logs", "role: log",
			1): `keys[1].role: "log" is not the name`,
		strings.Replace(document(1, "off", ""), "name: bob", "name: alice", 1): "is also the " +
			"name in keys[0].name",
		strings.Replace(document(1, "off", ""), "[create, update]", "[wrote]", 1): "is not a verb",
		strings.Replace(document(1, "off", ""), id("n1"), id("alice"), 1): "is also the key " +
			"of keys[0].key",
		strings.Replace(document(1, "off", ""), public("bob"), "ssh-rsa AAAA", 1): "is not an " +
			"ed25519 public key",
		document(1, "off", fmt.Sprintf("revoked:\n- {key: %s, since: 2026-11-28T00:00:00Z}\n", id("a"))): "remove it there",
	} {
		_, err := trust.DecodeFile([]byte(in))
		wantReason(t, in, fmt.Sprint(err), want)
	}
	f, err := trust.DecodeFile([]byte(document(1, "off", "")))
	if err != nil || len(f.Roles) != 3 || f.Keys[1].Name != "bob" || f.Nodes[0].Key.String() != id("n1") {
		t.Errorf("%+v %v", f, err)
	}
}

// TestPublicKeys checks both forms of a key.
func TestPublicKeys(t *testing.T) {
	want := trust.PublicKey(key("a").Public())
	for _, in := range []string{want.String(), want.String() + " a comment"} {
		if got, err := trust.ParsePublicKey(in); err != nil || got.ID() != want.ID() {
			t.Errorf("%s: %v %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa " + strings.Fields(want.String())[1], "AAAA",
	} {
		if _, err := trust.ParsePublicKey(in); err == nil {
			t.Errorf("%q is accepted", in)
		}
	}
}

// FuzzDecode checks that no input of the decoders panics, and that an envelope survives a round
// trip.
func FuzzDecode(f *testing.F) {
	f.Add(signed(f, document(1, "off", ""), "a"))
	f.Add([]byte(`{"key":"00112233445566778899aabbccddeeff","name":"n","services":["*"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = trust.DecodeFile(b)
		_, _ = trust.DecodeEnrollment(b)
		_, _ = trust.ParsePublicKey(string(b))
		e, err := trust.ParseEnvelope(bytes.Clone(b))
		if err != nil {
			return
		}
		copied, err := trust.ParseEnvelope(e.Encode())
		if err == nil && len(e.Signatures) > 0 && (!bytes.Equal(copied.Document, e.Document) ||
			len(copied.Signatures) != len(e.Signatures)) {
			t.Errorf("a round trip changes %q", b)
		}
		_, _ = e.Signers()
		s := trust.New(trust.Options{Cluster: "c"})
		_, _ = s.Accept(b)
	})
}
