package engine

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

// keyed returns nodes with keys that agree. The last one is hostile: tests send its messages.
func keyed(t *testing.T, n int) (*sim, *simNode) {
	s := newSim(t, 1, n, Limits{Horizon: horizon})
	s.cluster = "here"
	s.sign()
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.publish(0, ownItems(3, "item"))
	s.run(5 * time.Second)
	return s, s.nodes[n-1]
}

// attack sends a message of the last node to a node.
func (s *sim) attack(to int, m message) {
	m.From = s.nodes[len(s.nodes)-1].member()
	s.step(s.nodes[to], Received{m.encode()})
}

// enveloped returns an encoded entry with another signature.
func enveloped(t testing.TB, content []byte, domain string, s sign.Signer) []byte {
	t.Helper()
	var signature []byte
	if s != nil {
		var err error
		if signature, err = sign.Make(s, domain, content); err != nil {
			t.Fatal(err)
		}
	}
	return wire.AppendBytes(wire.AppendBytes(nil, envelopeContent, content), envelopeSignature, signature)
}

func contentOf(t *testing.T, raw []byte) []byte {
	t.Helper()
	return oldFields(t, raw, envelopeSignature)[envelopeContent][0]
}

const (
	recordDomain   = "nearside record signature"
	manifestDomain = "nearside manifest signature"
)

// TestHostileRecords sends versions of a record that a member may have changed, and checks that
// none is in force or parked. The signed version is accepted after them.
func TestHostileRecords(t *testing.T) {
	s, hostile := keyed(t, 3)
	author := s.nodes[1].signer
	month := s.change(s.nodes[1], Put{Key: oldKey, Body: []byte("last month")})[0]
	s.run(time.Second)
	s.change(s.nodes[1], Put{Key: oldKey, Body: []byte("now")})
	s.run(time.Second)
	good := signed(t, author, newKey, "body")
	future, err := record.Successor(s.now.Add(20*365*24*time.Hour), nil, Put{Key: newKey, Body: []byte("future")},
		Origin{Node: nodeOf(author), Cluster: "here", Signer: author})
	if err != nil {
		t.Fatal(err)
	}
	otherCluster, err := Successor(simStart, nil, Put{Key: newKey, Body: []byte("body")},
		Origin{Node: nodeOf(author), Cluster: "there", Signer: author})
	if err != nil {
		t.Fatal(err)
	}
	nowhere, err := Successor(simStart, nil, Put{Key: newKey, Body: []byte("body")},
		Origin{Node: nodeOf(author), Signer: author})
	if err != nil {
		t.Fatal(err)
	}
	content := contentOf(t, good.Encoded())
	later := bytes.Replace(contentOf(t, future.Encoded()), []byte("future"), []byte("forged"), 1)
	forged := bytes.Replace(content, []byte("body"), []byte("evil"), 1)
	e := s.nodes[0].engine
	root := e.Root()
	for name, raw := range map[string][]byte{
		"forged": wire.AppendBytes(wire.AppendBytes(nil, envelopeContent, forged), envelopeSignature, good.Signature),
		"truncated": wire.AppendBytes(wire.AppendBytes(nil, envelopeContent, content), envelopeSignature,
			good.Signature[:sign.Size-1]),
		"no signature":    enveloped(t, content, "", nil),
		"re-signed":       enveloped(t, content, recordDomain, hostile.signer),
		"wrong domain":    enveloped(t, content, manifestDomain, author),
		"forged and late": enveloped(t, later, recordDomain, hostile.signer),
		"wrong cluster":   otherCluster.Encoded(),
		"without cluster": nowhere.Encoded(),
		"replayed":        month.Encoded(),
	} {
		r, err := DecodeRecord(raw)
		if err != nil {
			t.Fatal(err)
		}
		s.attack(0, message{Records: []*Record{r}})
		if e.Root() != root || len(e.parked) > 0 || len(e.Conflicts()) > 0 {
			t.Errorf("%s: the state has changed", name)
		}
	}
	if n := e.Stats().Counters["refused: signature not valid"]; n != 6 {
		t.Errorf("%d signatures are not valid", n)
	}
	list, total := e.Refusals()
	if total[ReasonTrust] == 0 || total[ReasonCluster] != 2 ||
		!slices.ContainsFunc(list, func(r Refusal) bool { return r.Key == newKey && r.Reason == ReasonTrust }) {
		t.Errorf("refusals %+v", list)
	}
	s.attack(0, message{Have: []Head{good.Head()}})
	if e.known(good.Head()) {
		t.Error("forged copies of a version prevent requests for it")
	}
	s.attack(0, message{Records: []*Record{good}})
	if r := e.Record(newKey); r == nil || r.Signer() != sign.Fingerprint(author.Public()) {
		t.Errorf("the signed version is not in force: %+v", r)
	}
}

// manifestOf returns an unsigned manifest of a node, with an item.
func manifestOf(t testing.TB, n NodeID, epoch uint64, s sign.Signer) *Manifest {
	t.Helper()
	m, err := Manifest{Node: n, Name: "forged", Order: record.MakeOrder(epoch, 1), Cluster: "here", Entries: []Entry{
		{Key: Key{Kind: "Dataplane", Mesh: "default", Name: "evil"}, Hash: HashBody([]byte("evil"))}}}.Seal(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestHostileManifests sends manifests of a live node that others have written. Its items remain in
// force, also on itself.
func TestHostileManifests(t *testing.T) {
	s, hostile := keyed(t, 3)
	victim := s.nodes[0]
	own := victim.engine.Manifest(victim.id)
	epoch := uint64(s.now.Unix()) + 1000
	content := contentOf(t, own.Encoded())
	unsigned := manifestOf(t, victim.id, epoch, nil)
	resigned, err := DecodeManifest(enveloped(t, content, manifestDomain, hostile.signer))
	if err != nil {
		t.Fatal(err)
	}
	bare, err := DecodeManifest(enveloped(t, content, "", nil))
	if err != nil {
		t.Fatal(err)
	}
	domain, err := DecodeManifest(enveloped(t, contentOf(t, manifestOf(t, victim.id, epoch, victim.signer).Encoded()),
		recordDomain, victim.signer))
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*Manifest{
		"unsigned": unsigned, "of another key": manifestOf(t, victim.id, epoch, hostile.signer), "re-signed": resigned,
		"signature removed": bare, "wrong domain": domain,
	} {
		for to := range 2 {
			s.attack(to, message{Manifests: []*Manifest{m}, Bodies: [][]byte{[]byte("evil")}})
			s.run(5 * time.Second)
			if got := s.itemsOf(to, 0); len(got) != 3 || got["evil"] != "" {
				t.Errorf("%s: node %d has %v", name, to, got)
			}
		}
	}
	if victim.engine.Cloned() || victim.engine.Manifest(victim.id).Epoch() != own.Epoch() {
		t.Error("a forged manifest silenced its node, or raised its epoch")
	}
	if n := s.nodes[1].engine.Stats().Counters["refused: "+whyUnsigned]; n == 0 {
		t.Error("the unsigned manifest was not counted")
	}
	if s.publish(0, ownItems(4, "later")); s.nodes[1].engine.pending[own.Slot()] != nil {
		t.Error("a forged manifest waits")
	}
	s.run(5 * time.Second)
	if got := s.itemsOf(1, 0); len(got) != 4 {
		t.Errorf("after a change, node 1 has %v", got)
	}
}

// TestUnsignedManifestIsReplaced gives a node that does not know the key of another one a forged
// manifest with a later epoch. The signed manifest replaces it, although its epoch is earlier.
func TestUnsignedManifestIsReplaced(t *testing.T) {
	for _, claim := range []bool{false, true} {
		s, _ := keyed(t, 4)
		victim := s.nodes[0]
		s.crash(victim)
		s.run(time.Minute)
		late := &simNode{i: 4, disk: map[string]Op{}, signer: testKey(9)}
		late.id = nodeOf(late.signer)
		s.nodes = append(s.nodes, late)
		s.isolate(4)
		s.start(late)
		forged := manifestOf(t, victim.id, uint64(s.now.Unix())+1_000_000, nil)
		s.step(late, Received{(&message{From: "3-1", Manifests: []*Manifest{forged},
			Bodies: [][]byte{[]byte("evil")}}).encode()})
		if got := s.itemsOf(4, 0); got["evil"] == "" {
			t.Fatalf("the forged manifest was not accepted: %v", got)
		}
		if claim { // its member is alive again
			if _, ok := late.engine.ClaimName(victim.name(), victim.id); !ok || len(s.itemsOf(4, 0)) > 0 {
				t.Errorf("name %v, items %v", ok, s.itemsOf(4, 0))
			}
		}
		clear(s.cut)
		s.join()
		s.run(time.Minute)
		for _, n := range s.nodes[1:] {
			if got := s.itemsOf(n.i, 0); len(got) != 3 || got["evil"] != "" {
				t.Errorf("node %d has %v", n.i, got)
			}
			if n.engine.Root() != s.nodes[1].engine.Root() {
				t.Errorf("node %d differs", n.i)
			}
		}
	}
}

// mark returns a manifest that declares a node gone.
func mark(t testing.TB, n NodeID, epoch uint64, s sign.Signer) *Manifest {
	t.Helper()
	m, err := Manifest{Node: n, Order: record.MakeOrder(epoch, 1<<24-1), Forgotten: true, Cluster: "here"}.Seal(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestHostileForget declares a live node gone. No node drops its items, and it does not publish
// them more often than a limit.
func TestHostileForget(t *testing.T) {
	s, hostile := keyed(t, 3)
	victim := s.nodes[0]
	for i := range 100 {
		epoch := victim.engine.Stats().Epoch + uint64(i*100)
		for to := range 2 {
			for _, by := range []sign.Signer{nil, hostile.signer} {
				s.attack(to, message{Manifests: []*Manifest{mark(t, victim.id, epoch, by)}})
				s.attack(to, message{Manifests: []*Manifest{mark(t, victim.id, uint64(s.now.Unix())+300*24*3600, by)}})
			}
		}
		if got := s.itemsOf(1, 0); len(got) != 3 {
			t.Fatalf("mark %d: node 1 has %v", i, got)
		}
	}
	s.run(10 * time.Second)
	for i := range 2 {
		if m, got := s.nodes[i].engine.Manifest(victim.id), s.itemsOf(i, 0); m == nil || m.Forgotten || len(got) != 3 {
			t.Errorf("node %d has %v of %+v", i, got, m)
		}
	}
	if n := s.nodes[1].engine.Stats().Counters["refused: "+whyAlive]; n == 0 {
		t.Error("marks of a live node were not counted")
	}
	if st := victim.engine.Stats(); st.Counters["refused: marks of this node"] == 0 ||
		st.Epoch > uint64(s.now.Unix())+2*24*3600 {
		t.Errorf("epoch %d, %v", st.Epoch, st.Counters)
	}
	s.crash(victim)
	s.run(20 * time.Second) // a mark of a node that is not alive is accepted
	s.step(s.nodes[1], Forget{victim.id})
	s.run(20 * time.Second)
	for _, n := range s.nodes[1:] {
		if m := n.engine.Manifest(victim.id); m == nil || !m.Forgotten || m.Signer() == (sign.ID{}) {
			t.Errorf("node %d: %+v", n.i, m)
		}
	}
	s.start(victim) // and it returns
	s.join()
	s.run(20 * time.Second)
	if got := s.itemsOf(1, 0); len(got) != 3 {
		t.Errorf("after its return, node 1 has %v", got)
	}
}

// TestEquivocation lets a node sign two manifests with one order. All nodes accept the same one and
// report the node.
func TestEquivocation(t *testing.T) {
	s, hostile := keyed(t, 3)
	order := record.MakeOrder(hostile.engine.Stats().Epoch+10, 1)
	for i := range 2 {
		for _, body := range []string{"one", "two"} {
			if i == 1 { // the other node receives them in the other order
				body = map[string]string{"one": "two", "two": "one"}[body]
			}
			m, err := Manifest{Node: hostile.id, Name: hostile.name(), Order: order, Cluster: "here", Entries: []Entry{
				{Key: Key{Kind: "Dataplane", Mesh: "default", Name: "x"}, Hash: HashBody([]byte(body))}}}.Seal(hostile.signer)
			if err != nil {
				t.Fatal(err)
			}
			s.attack(i, message{Manifests: []*Manifest{m}, Bodies: [][]byte{[]byte(body)}})
		}
	}
	a, b := s.itemsOf(0, 2), s.itemsOf(1, 2)
	if a["x"] == "" || a["x"] != b["x"] {
		t.Errorf("%v, %v", a, b)
	}
	if !slices.ContainsFunc(append(s.nodes[0].notes, s.nodes[1].notes...), func(n Note) bool {
		return n.What == "cloned" && strings.Contains(n.Text, "two manifests with the same order")
	}) {
		t.Error("no node reports it")
	}
}
