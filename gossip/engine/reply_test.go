package engine

import (
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// TestReplyIsBounded answers a request for one version with 20,000 records. Only the requested ones
// are exempt from the rate of the peer.
func TestReplyIsBounded(t *testing.T) {
	e, _ := New(Config{Self: NodeID{1}, Member: "self", Random: func(int) int { return 0 }}, at(simStart), nil)
	e.Step(at(simStart), PeerUp{Member: "peer", Node: NodeID{2}, Features: Features})
	asked, err := successor(newKey, nil, record.Wall(simStart), Writer{2}, false, "text", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	act := e.Step(at(simStart), Received{(&message{From: "peer", Have: []Head{asked.Head()}}).encode()})
	request := uint64(0)
	for _, s := range act.Send {
		if m, err := decodeMessage(s.Data); err == nil && len(m.Want) == 1 {
			request = m.Request
		}
	}
	if request == 0 {
		t.Fatal("the version was not requested")
	}
	const each = 500
	for i := range 40 {
		m := message{From: "peer", Reply: request}
		for k := range each {
			r, err := successor(Key{Kind: "K", Name: fmt.Sprint(i*each + k)}, nil, record.Wall(simStart), Writer{byte(k), 3},
				false, "text", []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			m.Records = append(m.Records, r)
		}
		e.Step(at(simStart), Received{m.encode()})
	}
	if n := len(e.Versions()); n > peerBurst {
		t.Errorf("%d records of a reply to one request were accepted", n)
	}
	m := message{From: "peer", Reply: request, Records: []*Record{asked}, Last: true}
	e.Step(at(simStart.Add(1e9)), Received{m.encode()})
	if e.Record(newKey) == nil {
		t.Error("the requested version was not accepted")
	}
}
