package trust_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// start is the date of the records of tests.
var start = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// key returns the key of a name, which is the same in each test.
func key(name string) sign.Signer {
	seed := sha256.Sum256([]byte(name))
	return sign.Key(ed25519.NewKeyFromSeed(seed[:]))
}

func public(name string) string { return trust.PublicKey(key(name).Public()).String() }

func id(name string) string { return trust.PublicKey(key(name).Public()).ID().String() }

func node(name string) engine.NodeID { return engine.NodeID(sign.Fingerprint(key(name).Public())) }

// document returns a trust file: root a signs, alice operates all kinds, and bob access logs.
func document(version int, mode, more string) string {
	return fmt.Sprintf(`cluster: c
version: %d
mode: %s
threshold: 1
roots:
- {name: a, key: %s}
roles:
- {name: operator, kinds: ["*"], verbs: ["*"]}
- {name: logs, kinds: [MeshAccessLog], meshes: [default], names: ["log-*"], verbs: [create, update]}
- {name: enroller, kinds: [Dataplane], verbs: [get], features: [enroll]}
keys:
- {name: alice, key: %s, role: operator}
- {name: bob, key: %s, role: logs, notBefore: 2026-11-01T00:00:00Z, notAfter: 2026-12-01T00:00:00Z}
- {name: erin, key: %s, role: enroller}
nodes:
- {name: n1, key: %s, role: operator}
%s`, version, mode, public("a"), public("alice"), public("bob"), public("erin"), id("n1"), more)
}

// signed returns the text of a trust file with signatures.
func signed(t testing.TB, document string, roots ...string) []byte {
	t.Helper()
	e := &trust.Envelope{Document: []byte(document)}
	for _, r := range roots {
		if err := e.Sign(key(r)); err != nil {
			t.Fatal(err)
		}
	}
	return e.Encode()
}

// accepted returns a state after some trust files.
func accepted(t testing.TB, s *trust.State, files ...[]byte) *trust.State {
	t.Helper()
	for _, f := range files {
		next, err := s.Accept(f)
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	return s
}

// enforcing returns a state in the mode enforce.
func enforcing(t testing.TB) *trust.State {
	return accepted(t, trust.New(trust.Options{Cluster: "c", Self: node("self"), Features: features}),
		signed(t, document(1, trust.ModeEnforce, ""), "a"))
}

// features stands for the classes of resources: a body with "lua" is dangerous.
func features(_ resource.Key, body []byte) access.Features {
	if strings.Contains(string(body), "lua") {
		return access.FeaturePatch
	}
	return 0
}

// put describes a record.
type put struct {
	kind, mesh, name, body string
	by                     string // key that signs it; "": none
	at                     time.Time
	update, deleted        bool
}

func record(t testing.TB, p put) *engine.Record {
	t.Helper()
	if p.at.IsZero() {
		p.at = start
	}
	of := engine.Origin{Node: node("writer"), Name: "writer", Cluster: "c"}
	if p.by != "" {
		of.Signer = key(p.by)
	}
	change := engine.Put{Key: engine.Key{Kind: p.kind, Mesh: p.mesh, Name: p.name}, Body: []byte(p.body)}
	var parent *engine.Record
	var err error
	if p.update || p.deleted {
		if parent, err = engine.Successor(p.at.Add(-time.Hour), nil, change, of); err != nil {
			t.Fatal(err)
		}
	}
	if p.deleted {
		change.Delete, change.Body = true, nil
	}
	r, err := engine.Successor(p.at, parent, change, of)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantReason checks a reason: "" or a part of it.
func wantReason(t testing.TB, what, got, want string) {
	t.Helper()
	if want == "" && got != "" || want != "" && !strings.Contains(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
