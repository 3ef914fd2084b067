package policy_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/source/peers/policy"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func key(name string) sign.Signer {
	seed := sha256.Sum256([]byte(name))
	return sign.Key(ed25519.NewKeyFromSeed(seed[:]))
}

// file returns a trust file of one root.
func file(t *testing.T, root string, version int, mode string) []byte {
	t.Helper()
	e := &trust.Envelope{Document: fmt.Appendf(nil, "cluster: c\nversion: %d\nmode: %s\nthreshold: 1\nroots:\n"+
		"- {name: %s, key: %s}\n", version, mode, root, trust.PublicKey(key(root).Public()))}
	if err := e.Sign(key(root)); err != nil {
		t.Fatal(err)
	}
	return e.Encode()
}

// record returns a record that a key signs.
func record(t *testing.T, kind, name string, body []byte, by string) *engine.Record {
	t.Helper()
	r, err := engine.Successor(now, nil, engine.Put{Key: engine.Key{Kind: kind, Name: name}, Body: body},
		engine.Origin{Node: engine.NodeID{1}, Name: "n", Cluster: "c", Signer: key(by)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fileRecord(t *testing.T, text []byte, by string) *engine.Record {
	return record(t, trust.KindFile, trust.FileName, text, by)
}

// version returns the version of the trust file in force; 0: none.
func version(p *policy.Policy) uint64 {
	if f := p.State().File(); f != nil {
		return f.Version
	}
	return 0
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPin checks that the first trust file of the pool is pinned over a restart, that later ones
// must follow it, and that the file of other roots changes nothing.
func TestPin(t *testing.T) {
	o := policy.Options{Dir: t.TempDir(), Cluster: "c", Now: func() time.Time { return now }}
	p := policy.Open(o, nil)
	if p.State().Mode() != trust.ModeOff || version(p) != 0 {
		t.Fatal("a new node has a trust file")
	}
	if !p.Take([]*engine.Record{fileRecord(t, file(t, "a", 1, "warn"), "a")}) || version(p) != 1 {
		t.Fatal("the first trust file of the pool is not in force")
	}
	if from, since := p.First(); from != policy.FromPool || !since.Equal(now) {
		t.Errorf("first from %q at %v", from, since)
	}
	p = policy.Open(o, nil)
	if version(p) != 1 || p.State().Mode() != trust.ModeWarn || p.Problems() != nil {
		t.Fatalf("after a restart: %d %s %v", version(p), p.State().Mode(), p.Problems())
	}
	if p.Take([]*engine.Record{fileRecord(t, file(t, "mallory", 7, "off"), "mallory")}) || version(p) != 1 {
		t.Error("the trust file of other roots is in force")
	}
	if !p.Take([]*engine.Record{fileRecord(t, file(t, "a", 2, "enforce"), "a")}) || p.State().Mode() != "enforce" {
		t.Error("the next trust file is not in force")
	}
	if p.Take([]*engine.Record{fileRecord(t, file(t, "a", 1, "warn"), "a")}) || version(p) != 2 {
		t.Error("an earlier trust file is in force again")
	}
	p.Take([]*engine.Record{fileRecord(t, file(t, "a", 2, "off"), "a")})
	if list := p.Problems(); len(list) != 1 || !strings.Contains(list[0], "same version") {
		t.Errorf("two trust files with one version: %q", list)
	}
	if p.Take([]*engine.Record{fileRecord(t, file(t, "a", 3, "enforce"), "a")}); version(p) != 3 || p.Problems() != nil {
		t.Errorf("a higher version does not end the disagreement: %d %q", version(p), p.Problems())
	}
}

// TestDamagedPin checks a node whose saved trust file cannot be read: with the file in the state of
// the pool it continues, and without it accepts nothing new.
func TestDamagedPin(t *testing.T) {
	for what, damage := range map[string]func(b []byte) []byte{
		"cut":   func(b []byte) []byte { return b[:len(b)/2] },
		"empty": func([]byte) []byte { return nil },
		"a bit": func(b []byte) []byte {
			return []byte(strings.Replace(string(b), "mode: warn", "mode: off", 1))
		},
	} {
		o := policy.Options{Dir: t.TempDir(), Cluster: "c", Now: func() time.Time { return now }}
		first := fileRecord(t, file(t, "a", 1, "warn"), "a")
		policy.Open(o, []*engine.Record{first})
		path := filepath.Join(o.Dir, "trust.pin")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, damage(b))

		p := policy.Open(o, nil)
		r := record(t, "MeshTimeout", "x", nil, "alice")
		if p.State().Damage() == "" || p.Record(r) == "" || p.State().Mode() != trust.ModeEnforce {
			t.Errorf("%s: a damaged trust file counts as none", what)
		}
		if p.Take([]*engine.Record{fileRecord(t, file(t, "mallory", 9, "off"), "mallory")}); version(p) != 0 {
			t.Errorf("%s: the node accepts another trust file", what)
		}
		if list := p.Problems(); len(list) != 1 || !strings.Contains(list[0], "accepts nothing") {
			t.Errorf("%s: %q", what, list)
		}
		p = policy.Open(o, []*engine.Record{first})
		if version(p) != 1 || p.Record(r) != "" || len(p.Problems()) != 1 {
			t.Errorf("%s: with the record: %d %q", what, version(p), p.Problems())
		}
		o.File = filepath.Join(t.TempDir(), "t")
		write(t, o.File, file(t, "a", 1, "warn"))
		if p = policy.Open(o, nil); version(p) != 1 || p.State().Damage() != "" || p.Problems() != nil {
			t.Errorf("%s: with trust.file: %d %q", what, version(p), p.Problems())
		}
	}
}

// TestAnchor checks trust.file: it is the first trust file, later ones of the pool follow it over
// restarts, and a file of other roots replaces them.
func TestAnchor(t *testing.T) {
	o := policy.Options{Dir: t.TempDir(), File: filepath.Join(t.TempDir(), "t"), Cluster: "c", Mode: trust.ModeEnforce,
		Now: func() time.Time { return now }}
	write(t, o.File, file(t, "a", 1, "off"))
	p := policy.Open(o, nil)
	if from, _ := p.First(); version(p) != 1 || from != policy.FromFile {
		t.Fatalf("trust.file is not in force: %q", p.Problems())
	}
	p.Take([]*engine.Record{fileRecord(t, file(t, "a", 2, "off"), "a")})
	if p = policy.Open(o, nil); version(p) != 2 {
		t.Fatalf("after a restart: version %d", version(p))
	}
	write(t, o.File, file(t, "a", 1, "warn")) // edited, but the file in force is a later one of its roots
	if p = policy.Open(o, nil); version(p) != 2 {
		t.Errorf("an earlier trust.file of the same roots replaced version 2 by %d", version(p))
	}
	write(t, o.File, []byte("cluster: c\n"))
	if p = policy.Open(o, nil); version(p) != 2 || len(p.Problems()) != 1 {
		t.Errorf("a faulty trust.file: version %d, %q", version(p), p.Problems())
	}
	write(t, o.File, file(t, "b", 1, "off"))
	p.Configure(trust.ModeWarn, "")
	if p.State().File().Roots[0].Name != "b" || p.State().Mode() != trust.ModeWarn || p.Problems() != nil {
		t.Errorf("a trust.file of new roots: %+v %q", p.State().File(), p.Problems())
	}
}

// TestAdopt checks that an operator can give the first trust file to a node that accepts none from
// peers.
func TestAdopt(t *testing.T) {
	o := policy.Options{Dir: t.TempDir(), Cluster: "c", Mode: trust.ModeEnforce, Now: func() time.Time { return now }}
	p := policy.Open(o, nil)
	if p.Take([]*engine.Record{fileRecord(t, file(t, "a", 1, "off"), "a")}) || version(p) != 0 {
		t.Fatal("the node accepts the first trust file of a peer")
	}
	if err := p.Adopt(file(t, "a", 1, "off")); err != nil || version(p) != 1 {
		t.Fatal(err)
	}
	if err := p.Adopt(file(t, "b", 1, "off")); err == nil {
		t.Error("a second first trust file is accepted")
	}
	if p = policy.Open(o, nil); version(p) != 1 {
		t.Error("the trust file is lost by a restart")
	}
}

// TestExpiry checks that an enrollment ends at its time.
func TestExpiry(t *testing.T) {
	at := now
	o := policy.Options{Cluster: "c", Mode: trust.ModeEnforce, Now: func() time.Time { return at }}
	p := policy.Open(o, nil)
	if err := p.Adopt(file(t, "a", 1, "off")); err != nil {
		t.Fatal(err)
	}
	id := engine.NodeID(sign.Fingerprint(key("n").Public()))
	e := trust.Enrollment{Key: trust.ID(id), Name: "n", Services: []string{"*"}, NotAfter: now.Add(time.Hour)}
	body, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !p.Take([]*engine.Record{record(t, trust.KindEnrollment, id.String(), body, "a")}) || p.Member(id, "n") != "" {
		t.Errorf("the node is not enrolled: %q", p.Member(id, "n"))
	}
	if p.Tick() {
		t.Error("the state changes before the enrollment ends")
	}
	at = at.Add(2 * time.Hour)
	if !p.Tick() || !strings.Contains(p.Member(id, "n"), "expired") {
		t.Errorf("the enrollment does not end: %q", p.Member(id, "n"))
	}
}
