package engine

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

func testKey(n byte) sign.Signer {
	return sign.Key(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize)))
}

func nodeOf(s sign.Signer) NodeID { return NodeID(sign.Fingerprint(s.Public())) }

// signed returns a first version of a key as a node with a signer writes it.
func signed(t testing.TB, s sign.Signer, k Key, body string) *Record {
	t.Helper()
	r, err := Successor(simStart, nil, Put{Key: k, Body: []byte(body)},
		Origin{Node: nodeOf(s), Cluster: "here", Signer: s})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// judges is a policy for tests: keys that may write, by kind.
type judges struct{ writers map[sign.ID]bool }

func (j *judges) Record(r *Record) string {
	if j.writers[r.Signer()] {
		return ""
	}
	return "key " + r.Signer().String() + " may not write"
}

func (j *judges) Manifest(m *Manifest) string {
	if j.writers[m.Signer()] {
		return ""
	}
	if m.Name == "taken" {
		return ReasonName + ": taken"
	}
	return "no enrollment"
}

// TestPolicyRefuses checks that versions of others are refused by the policy, and accepted after it
// has changed.
func TestPolicyRefuses(t *testing.T) {
	here, there := testKey(1), testKey(2)
	j := &judges{map[sign.ID]bool{sign.Fingerprint(here.Public()): true}}
	e, _ := New(Config{Self: nodeOf(here), Member: "here", Cluster: "here", Random: func(int) int { return 0 },
		Signer: here,
		Policy: j}, at(simStart), nil)
	o, _ := New(Config{Self: nodeOf(there), Member: "there", Name: "taken", Cluster: "here",
		Random: func(int) int { return 0 }, Signer: there}, at(simStart), nil)
	e.Step(at(simStart), PeerUp{Member: "there", Node: nodeOf(there), Features: Features})
	o.Step(at(simStart), PeerUp{Member: "here", Node: nodeOf(here), Features: Features})
	deliver := func(now time.Time, act Actions) {
		for range 10 {
			var next Actions
			for _, m := range act.Send {
				to := e
				if m.To == "there" {
					to = o
				}
				next.Send = append(next.Send, to.Step(at(now), Received{bytes.Clone(m.Data)}).Send...)
			}
			act = next
		}
	}
	k := Key{Kind: "K", Mesh: "m", Name: "n"}
	r, _, err := o.Prepare(at(simStart), []Put{{Key: k, Body: []byte("there")}})
	if err != nil {
		t.Fatal(err)
	}
	deliver(simStart, o.Step(at(simStart), Committed{r}))
	deliver(simStart, o.Step(at(simStart), Own{Items: ownItems(1, "item")}))
	if e.Record(k) != nil || e.Manifest(nodeOf(there)) != nil {
		t.Fatal("an entry is in force without permission")
	}
	list, total := e.Refusals()
	if total[ReasonTrust] != 1 || total[ReasonName] != 1 || len(list) != 2 || list[0].Detail != "name: taken" ||
		!strings.Contains(list[1].Detail, "may not write") || list[1].Key != k {
		t.Fatalf("%+v, %v", list, total)
	}
	j.writers[sign.Fingerprint(there.Public())] = true
	now := simStart.Add(5 * time.Second)
	deliver(now, e.Step(at(now), Reconsider{}))
	if got := e.Record(k); got == nil || got.Signer() != sign.Fingerprint(there.Public()) {
		t.Errorf("record %+v", got)
	}
	if m := e.Manifest(nodeOf(there)); m == nil || m.Signer() != sign.Fingerprint(there.Public()) {
		t.Errorf("manifest %+v", m)
	}
	delete(j.writers, sign.Fingerprint(here.Public()))
	if _, _, err := e.Prepare(at(now), []Put{{Key: k, Body: []byte("here")}}); !errors.Is(err, ErrTrust) ||
		!strings.Contains(err.Error(), "may not write") {
		t.Errorf("own write: %v", err)
	}
}
