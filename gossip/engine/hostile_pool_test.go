package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// known permits records and manifests of the nodes of a network.
type known map[sign.ID]bool

func (k known) Record(r *Record) string { return k.unless(r.Signer()) }

func (k known) Manifest(m *Manifest) string { return k.unless(m.Signer()) }

func (k known) unless(id sign.ID) string {
	if k[id] {
		return ""
	}
	return "unknown key"
}

// busy runs a network of 200 nodes for some seconds. Each write is made on another node. It returns
// the sorted times until each node had each write, and the processing time.
func busy(t *testing.T, hostile bool) (spread []time.Duration, spent time.Duration, s *sim) {
	s = newSim(t, 7, 200, Limits{})
	s.delay = func() time.Duration { return 200*time.Microsecond + time.Duration(s.rng.IntN(200))*time.Microsecond }
	s.cluster = "here"
	s.sign()
	allowed := known{}
	for _, n := range s.nodes[:199] {
		allowed[sign.Fingerprint(n.signer.Public())] = true
	}
	for _, n := range s.nodes {
		n.policy = allowed
		s.start(n)
	}
	s.join()
	s.run(5 * time.Second)

	messages := hostileMessages(t, s)
	const writes = 50
	dates := make([]time.Time, writes)
	have := make([][]bool, writes)
	s.delivered = func(n *simNode) {
		for i := range writes {
			if !dates[i].IsZero() && !have[i][n.i] && n.i != 199 && n.engine.Record(writeKey(i)) != nil {
				have[i][n.i] = true
				spread = append(spread, s.now.Sub(dates[i]))
			}
		}
	}
	began := time.Now()
	for i := range writes {
		dates[i], have[i] = s.now, make([]bool, 200)
		s.change(s.nodes[i], Put{Key: writeKey(i), Body: make([]byte, 900)})
		for j := range 20 {
			if hostile {
				m := messages[(20*i+j)%len(messages)]
				m.From = s.nodes[199].member()
				s.step(s.nodes[(20*i+j)%199], Received{m.encode()})
			}
		}
		s.run(50 * time.Millisecond)
	}
	spent = time.Since(began)
	s.run(5 * time.Second)
	s.delivered = nil
	slices.Sort(spread)
	return spread, spent, s
}

func writeKey(i int) Key { return Key{Kind: "K", Mesh: "m", Name: fmt.Sprint("write-", i)} }

// hostileMessages returns messages with forged entries, and entries of unknown keys.
func hostileMessages(t *testing.T, s *sim) (out []message) {
	t.Helper()
	victim, own := s.nodes[0], s.nodes[len(s.nodes)-1].signer
	for i := range 500 {
		k := Key{Kind: fmt.Sprint("Junk", i%50), Name: fmt.Sprint(i)}
		r, err := Successor(s.now, nil, Put{Key: k, Body: make([]byte, 700)}, Origin{Node: nodeOf(own), Cluster: "here",
			Signer: own})
		if err != nil {
			t.Fatal(err)
		}
		forged, err := DecodeRecord(enveloped(t, contentOf(t, r.Encoded()), recordDomain, victim.signer))
		if err != nil {
			t.Fatal(err)
		}
		m, err := Manifest{Node: victim.id, Order: record.MakeOrder(uint64(s.now.Unix())+uint64(i)+100, 1),
			Cluster: "here"}.Seal(own)
		if err != nil {
			t.Fatal(err)
		}
		head := Head{Slot: Slot{byte(i), byte(i >> 8), 1}, Version: Version{Order: uint64(s.now.UnixMilli()) << 16}}
		out = append(out, message{Records: []*Record{r}}, message{Records: []*Record{forged}},
			message{Manifests: []*Manifest{m}}, message{Have: []Head{head}}, message{Want: []Slot{head.Slot}},
			message{Leaves: []Leaves{{Heads: []Head{head}}}})
	}
	return out
}

// TestPoolWithHostileMember measures 200 nodes with a write each 50 ms while one of them sends 400
// forged messages per second: the spread of writes and the processing time stay below twice those
// of a pool without it, and it leaves nothing behind.
func TestPoolWithHostileMember(t *testing.T) {
	if testing.Short() {
		t.Skip("runs 200 nodes twice")
	}
	quiet, before, _ := busy(t, false)
	loud, after, s := busy(t, true)
	if len(quiet) != 50*199 || len(loud) != 50*199 {
		t.Fatalf("%d and %d of %d writes have arrived", len(quiet), len(loud), 50*199)
	}
	for _, p := range []int{50, 99, 100} {
		a, b := percentile(quiet, p), percentile(loud, p)
		t.Logf("p%d: %v, with a hostile member %v", p, a, b)
		if b > 2*a {
			t.Errorf("p%d: %v instead of %v", p, b, a)
		}
	}
	t.Logf("processing time: %v, with a hostile member %v", before, after)
	if after > 2*before {
		t.Errorf("the processing time is %v instead of %v", after, before)
	}
	for _, n := range s.nodes[:199] {
		if len(n.engine.Records()) != 50 || n.engine.Root() != s.nodes[0].engine.Root() || len(n.engine.parked) > 0 {
			t.Errorf("%s has %d records and the root %v", n.name(), len(n.engine.Records()), n.engine.Root())
		}
	}
}

// TestFloodInNamesOfOthers checks that a node verifies at most a stated number of forged entries,
// although they come in the names of all members, and that it gets changes meanwhile.
func TestFloodInNamesOfOthers(t *testing.T) {
	s := newSim(t, 1, 20, Limits{})
	s.cluster = "here"
	s.sign()
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.run(5 * time.Second)
	victim, messages := s.nodes[0], hostileMessages(t, s)
	const rounds = 50
	for i := range rounds {
		for j := range 200 {
			m := messages[6*((200*i+j)%500)+1] // a forged record
			m.From = s.nodes[1+j%18].member()
			s.step(victim, Received{m.encode()})
		}
		if i == rounds/2 {
			s.change(s.nodes[1], Put{Key: writeKey(1), Body: []byte("x")})
		}
		s.run(100 * time.Millisecond)
	}
	counters := victim.engine.Stats().Counters
	if n := counters["refused: signature not valid"]; n > forgedBurst+forgedRate*(rounds/10+1) {
		t.Errorf("%d forged records were verified", n)
	}
	if counters["refused: too many forged entries"] == 0 {
		t.Error("no forged record was dropped unverified")
	}
	for _, n := range s.nodes {
		if n.engine.Record(writeKey(1)) == nil {
			t.Errorf("%s has no change of the time of the flood", n.name())
		}
	}
}
