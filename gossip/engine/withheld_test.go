package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

// exclude makes all nodes judge again, without one key or with all.
func (s *sim) exclude(j *judges, key sign.Signer, excluded bool) {
	j.writers[sign.Fingerprint(key.Public())] = !excluded
	for _, n := range s.nodes {
		s.step(n, Reconsider{})
	}
	s.run(10 * time.Second)
}

func (s *sim) agree(t *testing.T, when string) {
	t.Helper()
	for _, n := range s.nodes {
		if n.engine.Root() != s.nodes[0].engine.Root() || n.engine.Root() != rebuilt(n.engine) {
			t.Errorf("%s: node %d differs", when, n.i)
		}
	}
}

// TestPolicyWithdrawn excludes a key whose records, items, and directory are in force on all nodes.
// They are withheld, also after a restart, and come back when the key is permitted again, however
// old they are.
func TestPolicyWithdrawn(t *testing.T) {
	s := newSim(t, 1, 3, Limits{Horizon: horizon, ShardItems: 2})
	s.cluster = "here"
	s.sign()
	j := &judges{map[sign.ID]bool{}}
	for _, n := range s.nodes {
		n.policy = j
		j.writers[sign.ID(n.id)] = true
		s.start(n)
	}
	s.join()
	writer := s.nodes[1]
	tomb := Key{Kind: "K", Mesh: "m", Name: "tomb"}
	s.change(s.nodes[0], Put{Key: newKey, Body: []byte("by another key")}, Put{Key: tomb, Body: []byte("x")})
	s.run(time.Second)
	s.change(writer, Put{Key: oldKey, Body: []byte("old")}, Put{Key: newKey, Body: []byte("new")},
		Put{Key: tomb, Delete: true})
	directory := NodeID{0xd1}
	s.publish(1, ownItems(5, "item"))
	s.step(writer, Own{Owner: directory, Name: "d", Items: ownItems(9, "policy")})
	s.run(5 * time.Second)
	s.agree(t, "before")
	before := s.nodes[0].engine.Root()
	s.exclude(j, writer.signer, true)
	absent := func(when string) {
		t.Helper()
		for _, n := range s.nodes {
			e := n.engine
			if e.Record(oldKey) != nil || e.Record(newKey) != nil || e.Record(tomb) != nil || len(e.Directories()) > 0 ||
				n != writer && e.Manifest(writer.id) != nil {
				t.Errorf("%s: node %d has an excluded entry in force", when, n.i)
			}
			list, total := e.Refusals()
			want := 5
			if n == writer {
				want = 4
			}
			if total[ReasonTrust] < want || !slices.ContainsFunc(list, func(r Refusal) bool {
				return r.Key == oldKey && r.Withheld && r.Reason == ReasonTrust
			}) {
				t.Errorf("%s: node %d lists %v %+v", when, n.i, total, list)
			}
		}
	}
	absent("excluded")
	if _, _, err := writer.engine.Prepare(s.local(writer), []Put{{Key: oldKey, Body: []byte("again")}}); err == nil ||
		!strings.Contains(err.Error(), "may not write") {
		t.Errorf("an excluded write: %v", err)
	}
	for _, n := range s.nodes {
		s.restart(n)
	}
	s.join()
	s.run(20 * time.Second)
	absent("after a restart")
	for range 10 { // tombstones of the time are gone
		s.skip(30 * time.Hour)
		s.run(10 * time.Second)
	}
	s.exclude(j, writer.signer, false)
	s.run(time.Minute)
	s.agree(t, "permitted again")
	for _, n := range s.nodes {
		e := n.engine
		if r := e.Record(oldKey); r == nil || string(r.Body) != "old" || len(e.Directories()) != 1 ||
			len(e.Items(e.Directories()[0])) != 9 || len(s.itemsOf(n.i, 1)) != 5 || e.Manifest(writer.id) == nil {
			t.Errorf("node %d: %+v, directories %v, items %v", n.i, r, e.Directories(), s.itemsOf(n.i, 1))
		}
		if len(e.withheld) > 0 || e.withheldBytes != 0 {
			t.Errorf("node %d withholds %d entries with %d bytes", n.i, len(e.withheld), e.withheldBytes)
		}
	}
	if s.nodes[0].engine.Root() == before {
		t.Error("the restarts did not change the manifests")
	}
}

// TestForgetWithheld forgets a node whose items are withheld. They do not return when its key is
// permitted again.
func TestForgetWithheld(t *testing.T) {
	s := newSim(t, 1, 3, Limits{Horizon: horizon})
	s.cluster = "here"
	s.sign()
	j := &judges{map[sign.ID]bool{}}
	for _, n := range s.nodes {
		n.policy = j
		j.writers[sign.ID(n.id)] = true
		s.start(n)
	}
	s.join()
	s.publish(2, ownItems(5, "item"))
	s.run(5 * time.Second)
	gone := s.nodes[2]
	s.crash(gone)
	s.exclude(j, gone.signer, true)
	s.step(s.nodes[0], Forget{Node: gone.id})
	s.run(10 * time.Second)
	s.exclude(j, gone.signer, false)
	s.run(time.Minute)
	for _, n := range s.nodes[:2] {
		if m := n.engine.Manifest(gone.id); m == nil || !m.Forgotten || len(n.engine.withheld) > 0 {
			t.Errorf("node %d: %+v, %d withheld", n.i, m, len(n.engine.withheld))
		}
	}
}

// TestWithheldIsSuperseded writes a version of a withheld key, which then does not come back.
func TestWithheldIsSuperseded(t *testing.T) {
	s := newSim(t, 1, 2, Limits{Horizon: horizon})
	s.cluster = "here"
	s.sign()
	j := &judges{map[sign.ID]bool{}}
	for _, n := range s.nodes {
		n.policy = j
		j.writers[sign.ID(n.id)] = true
		s.start(n)
	}
	s.join()
	s.change(s.nodes[1], Put{Key: newKey, Body: []byte("one")})
	s.run(5 * time.Second)
	s.exclude(j, s.nodes[1].signer, true)
	s.change(s.nodes[0], Put{Key: newKey, Body: []byte("two")})
	s.run(5 * time.Second)
	s.exclude(j, s.nodes[1].signer, false)
	s.agree(t, "after")
	for _, n := range s.nodes {
		if r := n.engine.Record(newKey); r == nil || string(r.Body) != "two" || len(n.engine.withheld) > 0 {
			t.Errorf("node %d: %+v", n.i, r)
		}
	}
}

// TestWithheldIsBounded excludes more bytes than a node withholds.
func TestWithheldIsBounded(t *testing.T) {
	j := &judges{map[sign.ID]bool{sign.ID(nodeOf(testKey(1))): true}}
	e, _ := New(Config{Self: nodeOf(testKey(1)), Member: "self", Cluster: "here", Random: func(int) int { return 0 },
		Signer: testKey(1), Policy: j, Limits: Limits{Bytes: 80000}}, at(simStart), nil)
	for i := range 50 {
		r, _, err := e.Prepare(at(simStart), []Put{{Key: Key{Kind: "K", Name: fmt.Sprint(i)}, Body: make([]byte, 1000)}})
		if err != nil {
			t.Fatal(err)
		}
		e.Step(at(simStart), Committed{r})
	}
	clear(j.writers)
	e.Step(at(simStart), Reconsider{})
	if n := len(e.withheld); n == 0 || n > 10 || e.withheldBytes > 10000 || len(e.Versions()) > 0 {
		t.Errorf("%d entries withheld, %d bytes, %d in force", n, e.withheldBytes, len(e.Versions()))
	}
	if n := e.Stats().Counters["withheld entry dropped: too many"]; n < 40 {
		t.Errorf("%d dropped", n)
	}
}

// TestUnverifiedDisk starts an engine with entries that an earlier build has stored, which does not
// verify signatures. It drops those with invalid signatures, and verifies only once.
func TestUnverifiedDisk(t *testing.T) {
	author, hostile := testKey(1), testKey(2)
	good, other := signed(t, author, newKey, "body"), signed(t, author, oldKey, "body")
	forged := bytes.Replace(contentOf(t, other.Encoded()), []byte("body"), []byte("evil"), 1)
	raw := wire.AppendBytes(wire.AppendBytes(nil, envelopeContent, forged), envelopeSignature, other.Signature)
	bad, err := DecodeRecord(raw)
	if err != nil {
		t.Fatal(err)
	}
	m := manifestOf(t, nodeOf(author), 100, nil)
	stolen, err := DecodeManifest(wire.AppendBytes(wire.AppendBytes(nil, envelopeContent,
		contentOf(t, manifestOf(t, nodeOf(hostile), 100, hostile).Encoded())), envelopeSignature, make([]byte, sign.Size)))
	if err != nil {
		t.Fatal(err)
	}
	op := func(m *Manifest) Op {
		slot := m.Slot()
		return Op{Bucket: bucketManifests, Key: string(slot[:]), Value: m.Encoded()}
	}
	loaded, err := LoadRecord(raw)
	if err != nil {
		t.Fatal(err)
	}
	bodies := Op{Bucket: bucketBodies, Key: "evil", Value: []byte("evil")}
	for name, x := range map[string]Op{"encoded": {Bucket: BucketRecords, Value: raw},
		"decoded": {Bucket: BucketRecords, Value: raw, Record: loaded}} {
		saved := []Op{recordOp(good), x, op(m), op(stolen), bodies,
			{Bucket: bucketMeta, Key: metaVerified, Value: putNumber(7)},
			{Bucket: bucketMeta, Key: metaEpoch, Value: putNumber(8)}}
		e, act := New(Config{Self: NodeID{1}, Member: "self", Random: func(int) int { return 0 }}, at(simStart), saved)
		if e.Record(newKey) == nil || e.Record(newKey).Signer() != good.Signer() || e.Record(oldKey) != nil ||
			e.Manifest(m.Node) == nil || e.Manifest(stolen.Node) != nil || e.Stats().Counters["damaged"] != 2 {
			t.Errorf("%s: loaded %+v, %+v; damaged %d", name, e.Record(newKey), e.Record(oldKey), e.Stats().Counters["damaged"])
		}
		disk := map[string]Op{}
		apply(disk, act.Durable)
		second := append(saved[:1:1], recordOp(bad))
		for _, op := range disk {
			second = append(second, op)
		}
		if e, _ = New(Config{Self: NodeID{1}, Member: "self", Random: func(int) int { return 0 }}, at(simStart),
			second); e.Record(oldKey) == nil {
			t.Errorf("%s: the second start verifies again", name)
		}
	}
}

// TestSignatureIsAdded lets nodes receive an unsigned version, and then the same version with a
// signature. All of them have the signed one in the end, whatever the order.
func TestSignatureIsAdded(t *testing.T) {
	s, _ := keyed(t, 4)
	plain, err := Successor(s.now, nil, Put{Key: newKey, Body: []byte("x")}, Origin{Node: NodeID{5}, Cluster: "here"})
	if err != nil {
		t.Fatal(err)
	}
	var signatures []*Record
	for i := range 3 {
		r, err := DecodeRecord(enveloped(t, contentOf(t, plain.Encoded()), recordDomain, testKey(byte(60+i))))
		if err != nil {
			t.Fatal(err)
		}
		if r.Version() != plain.Version() {
			t.Fatal("the signature is part of the version")
		}
		signatures = append(signatures, r)
	}
	invalid, err := DecodeRecord(wire.AppendBytes(bytes.Clone(plain.Encoded()), envelopeSignature,
		make([]byte, sign.Size)))
	if err != nil {
		t.Fatal(err)
	}
	for i, order := range [][]*Record{{plain, signatures[0], signatures[1], signatures[2]},
		{signatures[2], plain, invalid, signatures[0], signatures[1]},
		{invalid, signatures[1], signatures[2], signatures[0]}} {
		for _, r := range order {
			s.attack(i, message{Records: []*Record{r}})
		}
	}
	s.run(5 * time.Second)
	want := s.nodes[0].engine.Record(newKey)
	for _, n := range s.nodes[:3] {
		if r := n.engine.Record(newKey); r == nil || r.Signer() == (sign.ID{}) || !bytes.Equal(r.Encoded(), want.Encoded()) {
			t.Errorf("node %d: %+v", n.i, r)
		}
		if len(n.engine.Conflicts()) > 0 {
			t.Errorf("node %d has conflicts", n.i)
		}
	}
	if r := s.nodes[3].engine.Record(newKey); r == nil || r.Signer() == (sign.ID{}) {
		t.Errorf("the signature did not spread: %+v", r)
	}
}

// TestSignatureSpreads adds a signature on one node to a version that all nodes have.
func TestSignatureSpreads(t *testing.T) {
	s, _ := keyed(t, 4)
	plain, err := Successor(s.now, nil, Put{Key: newKey, Body: []byte("x")}, Origin{Node: NodeID{5}, Cluster: "here"})
	if err != nil {
		t.Fatal(err)
	}
	s.attack(0, message{Records: []*Record{plain}})
	s.run(5 * time.Second)
	r, err := DecodeRecord(enveloped(t, contentOf(t, plain.Encoded()), recordDomain, testKey(60)))
	if err != nil {
		t.Fatal(err)
	}
	s.attack(0, message{Records: []*Record{r}})
	s.run(5 * time.Second)
	for _, n := range s.nodes {
		if r := n.engine.Record(newKey); r == nil || r.Signer() == (sign.ID{}) {
			t.Errorf("node %d: %+v", n.i, r)
		}
	}
}

// TestOldRecordIsPermitted excludes a record on two nodes, which agree with each other until it is
// older than all remembered deletions. When it is permitted, it is in force: it was not deleted.
func TestOldRecordIsPermitted(t *testing.T) {
	s := newSim(t, 1, 3, Limits{Horizon: horizon})
	s.cluster = "here"
	s.sign()
	j := &judges{map[sign.ID]bool{}}
	for _, n := range s.nodes {
		if j.writers[sign.ID(n.id)] = n.i != 1; n.i != 1 {
			n.policy = j
		}
		s.start(n)
	}
	s.join()
	s.change(s.nodes[1], Put{Key: oldKey, Body: []byte("old")})
	for range 10 {
		s.run(time.Minute)
		s.skip(30 * time.Hour)
	}
	s.change(s.nodes[2], Put{Key: newKey, Body: []byte("new")})
	s.run(time.Minute)
	if s.live(0, oldKey) || !s.live(0, newKey) || s.inLimbo(0, oldKey) {
		t.Fatal("the record is not refused")
	}
	s.exclude(j, s.nodes[1].signer, false)
	if !s.live(0, oldKey) || s.inLimbo(0, oldKey) {
		t.Error("the record is not in force")
	}
	s.agree(t, "permitted")
}

// TestWaitingManifestIsJudgedAgain excludes a key while a manifest of it waits for a body.
func TestWaitingManifestIsJudgedAgain(t *testing.T) {
	s, _ := keyed(t, 3)
	j := &judges{map[sign.ID]bool{}}
	for _, n := range s.nodes {
		j.writers[sign.ID(n.id)] = true
	}
	s.nodes[0].policy = j
	s.restart(s.nodes[0])
	author := testKey(9)
	m := manifestOf(t, nodeOf(author), uint64(s.now.Unix()), author)
	for _, excluded := range []bool{true, false} {
		j.writers[sign.Fingerprint(author.Public())] = true
		s.attack(0, message{Manifests: []*Manifest{m}})
		j.writers[sign.Fingerprint(author.Public())] = !excluded
		s.step(s.nodes[0], Reconsider{})
		s.attack(0, message{Bodies: [][]byte{[]byte("evil")}})
		if got := s.nodes[0].engine.Manifest(m.Node); (got == nil) != excluded {
			t.Errorf("excluded %v: %+v", excluded, got)
		}
	}
}
