package trusttest_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// stored returns the number of versions that an agent has, and of their bytes.
func (h *honest) stored() (versions, bytes int) {
	for _, v := range h.Store().Versions() {
		versions++
		bytes += len(v.Encoded())
	}
	return versions, bytes
}

// pour sends records to both agents in large messages.
func (s *scene) pour(h *hostile, n int, of func(i int) record) {
	s.t.Helper()
	var m message
	bytes := 0
	for i := range n {
		b := of(i).encode()
		m.records = append(m.records, b)
		if bytes += len(b) + 8; bytes > 800<<10 || i == n-1 {
			s.flood(h, m)
			m, bytes = message{}, 0
		}
	}
}

// floods checks that a member with the gossip key fills neither memory nor disk of agents that
// enforce trust: with records of unknown kinds, deletions, or nodes, and with one key or many.
func (s *scene) floods(t *testing.T, h *hostile, records int) {
	already, _ := s.a.stored()
	listed := map[string]bool{} // nodes, with members of earlier attacks
	for _, x := range []*honest{s.a, s.b} {
		for _, n := range x.trustOf(t).Nodes {
			listed[n.ID] = true
		}
	}
	many := []ed25519.PrivateKey{nil, h.meta.key, s.nodeKey("b")}
	for range 20 {
		key, _ := newKey()
		many = append(many, key)
	}
	body := strings.Repeat("x", 60<<10)
	s.pour(h, records, func(i int) record {
		return record{key: engineKey(fmt.Sprintf("Junk%d", i%100), "", fmt.Sprintf("junk-%d", i)), hlc: at(time.Now()),
			writer: engine.NodeID{byte(i), byte(i >> 8)}, body: body, cluster: cluster, by: many[i%len(many)]}
	})
	s.pour(h, 5*records, func(i int) record {
		return record{key: engineKey("MeshTimeout", "default", fmt.Sprintf("gone-%d", i)), hlc: at(time.Now()),
			writer: engine.NodeID{byte(i)}, deleted: true, cluster: cluster, by: many[i%len(many)]}
	})
	for i := range records {
		key, id := newKey()
		m := manifest{node: id, name: fmt.Sprint("node-", i), epoch: uint64(time.Now().Unix()), cluster: cluster, by: key,
			items: []engine.OwnItem{{Key: engineKey("Junk", "", "x"), Body: fmt.Appendf(nil, "%d%s", i, body[:15<<10])}}}
		if i%2 == 0 {
			m.by = nil
		}
		s.flood(h, m.message())
	}
	before := s.a.list() + s.b.list()
	s.works()
	if after := s.a.list() + s.b.list(); after != before {
		t.Errorf("it changes resources:\n%s", difference(before, after))
	}
	for _, x := range []*honest{s.a, s.b} {
		if versions, bytes := x.stored(); versions > already+10 || bytes > 64<<10 {
			t.Errorf("agent %s has %d versions with %d bytes", x.name, versions, bytes)
		}
		for _, n := range x.trustOf(t).Nodes {
			if !listed[n.ID] {
				t.Errorf("agent %s lists the node %+v", x.name, n)
			}
		}
	}
}

// TestClocksOfEightMembers checks that eight members of one process whose clocks are 20 years ahead
// change neither the dates that agents accept nor their deletions, and that agents accept writes.
func TestClocksOfEightMembers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	gone := record{key: engineKey("MeshTimeout", "default", "gone"), hlc: at(time.Now().Add(-time.Minute)), origin: "op",
		body: bodyOf(t, timeoutText("gone", "43s")), cluster: cluster}
	operator := join(t, s.a.addr(), member("operator"))
	s.records(operator, gone)
	s.has(s.b, timeoutKey("gone"), "gossip:op")
	agenttest.Remove(t, s.a.Agent, timeoutKey("gone"))
	s.has(s.b, timeoutKey("gone"), "")
	operator.leave()
	s.awaitRest()

	var all []*hostile
	for i := range 8 {
		h := join(t, s.a.addr(), member(fmt.Sprint("clock-", i)))
		h.ahead.Store(int64(years))
		all = append(all, h)
	}
	ctx, cancel := context.WithTimeout(t.Context(), agenttest.Patience)
	defer cancel()
	if !await(ctx, func() bool {
		asked := 0
		for _, h := range all {
			if h.clocks.Load() > 1 {
				asked++
			}
		}
		return asked > 3
	}) {
		t.Fatal("the agents do not ask for the clocks")
	}
	before := s.view()
	h := all[0]
	s.records(h, s.allow(time.Now().Add(years), nil), s.allow(time.Now().Add(years-time.Hour), h.meta.key), gone)
	s.works()
	s.records(h, s.allow(time.Now().Add(time.Minute), h.meta.key), gone)
	s.works()
	if out := difference(before, s.view()); out != "" {
		t.Errorf("it changes:\n%s", out)
	}
	agenttest.Eventually(t, "the clocks are reported", func() bool {
		return strings.Contains(s.a.Logs.String(), "the clock of ")
	})
}
