package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/limits"
	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// TestQuotas sends records whose writers a hostile node invents. The quota is that of the key that
// signed them, whatever writer they name, and the quota of another node stays unused.
func TestQuotas(t *testing.T) {
	s, hostile := keyed(t, 3)
	e := s.nodes[0].engine
	e.cfg.Limits.WriterRecords, e.cfg.Limits.Bytes = 8, 1<<20
	e.cfg.Known = func(kind string) bool { return kind != "Odd" }
	victim := s.nodes[1]
	n := 0
	send := func(by sign.Signer, writer NodeID, kind string, size int) {
		t.Helper()
		n++
		r, err := record.Successor(s.now, nil, Put{Key: Key{Kind: kind, Mesh: "quota", Name: fmt.Sprint(n)},
			Body: make([]byte, size)}, Origin{Node: writer, Cluster: "here", Signer: by})
		if err != nil {
			t.Fatal(err)
		}
		s.attack(0, message{Records: []*Record{r}})
	}
	before := len(e.Records())
	stored := func() int { return len(e.Records()) - before }
	for i := range 30 {
		send(hostile.signer, NodeID{byte(i), 77}, "K", 10)
		send(hostile.signer, victim.id, "K", 10)
	}
	if got, most := stored(), limits.Received(8); got != most {
		t.Errorf("%d records of one key are stored, want %d", got, most)
	}
	if f := e.Stats().FullWriters; len(f) != 1 || f[0].Writer != Writer(hostile.id[:8]) {
		t.Errorf("full writers: %+v", f)
	}
	before += stored()
	s.change(victim, puts(1, 5, write)...)
	s.run(time.Second)
	if got := stored(); got != 5 {
		t.Errorf("%d records of the other node are stored, want 5", got)
	}
	before += stored()
	for i := range 200 {
		send(nil, NodeID{byte(i), 78}, "K", 8<<10) // 1.6 MiB
	}
	if got, most := stored(), 1<<20/limits.UnsignedShare/(8<<10); got == 0 || got > most {
		t.Errorf("%d unsigned records are stored, want at most %d", got, most)
	}
	before += stored()
	e.cfg.Limits.Bytes, e.cfg.Limits.WriterRecords = 512<<20, 10000
	for key := range byte(20) { // each with 2 MiB
		for range 40 {
			send(testKey(100+key), NodeID{key, 79}, "Odd", 50<<10)
		}
		s.run(time.Minute)
	}
	if got, most := stored(), limits.UnknownAll/(50<<10); got < most*9/10 || got > most {
		t.Errorf("%d records of unknown kinds are stored, want about %d", got, most)
	}
	for _, why := range []string{limits.WriterFull, limits.UnsignedFull, limits.UnknownFull} {
		if e.Stats().Counters["refused: "+why] == 0 {
			t.Errorf("no refusal is counted: %s", why)
		}
	}
}
