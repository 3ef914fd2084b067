package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sumtree"
)

// contentDigest returns the digest of an encoded record or manifest, as the format defines it.
func contentDigest(domain string, raw []byte) Hash {
	_, _, n := protowire.ConsumeTag(raw)
	content, _ := protowire.ConsumeBytes(raw[n:])
	h := sha256.New()
	h.Write([]byte(domain))
	h.Write(binary.AppendUvarint(nil, uint64(len(content))))
	h.Write(content)
	return Hash(h.Sum(nil)[:16])
}

// rebuilt returns the root of the encoded entries.
func rebuilt(e *Engine) Digest {
	var tr sumtree.Tree[Head]
	for slot, en := range e.entries {
		h := Head{Slot: slot}
		if en.record != nil {
			h.Version = Version{Order: uint64(en.record.HLC),
				Digest: contentDigest("nearside record content", en.record.Encoded())}
		} else {
			h.Version = Version{Order: en.manifest.Order,
				Digest: contentDigest("nearside manifest content", en.manifest.Encoded())}
		}
		tr.Put(h)
	}
	return tr.Sum
}

// TestRootCoversContent checks that versions that differ only in their content have different
// roots, and that all nodes select the same one.
func TestRootCoversContent(t *testing.T) {
	s := trio(t)
	s.isolate(0)
	s.run(10 * time.Second)
	key := Key{Kind: "K", Mesh: "m", Name: "same version"}
	for i, body := range []string{"one", "two"} {
		r, err := successor(key, nil, record.Wall(s.now), Writer{1}, false, "text", []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		s.step(s.nodes[i], Committed{[]*Record{r}})
	}
	s.run(5 * time.Second)
	a, b := s.nodes[0].engine, s.nodes[1].engine
	if a.Record(key).HLC != b.Record(key).HLC || a.Root() == b.Root() {
		t.Fatal("entries with different contents have the same root")
	}
	clear(s.cut)
	s.run(10 * time.Second)
	for _, n := range s.nodes {
		if got, want := string(n.engine.Record(key).Body), string(a.Record(key).Body); got != want ||
			n.engine.Root() != a.Root() || n.engine.Root() != rebuilt(n.engine) {
			t.Errorf("node %d has %q, node 0 has %q", n.i, got, want)
		}
	}
}

// TestLoadComparesContent checks that a start does not trust a decoded record whose stored bytes
// differ.
func TestLoadComparesContent(t *testing.T) {
	key := Key{Kind: "K", Mesh: "m", Name: "a"}
	var ops []Op
	for _, body := range []string{"one", "two"} {
		r, err := successor(key, nil, 7<<16, Writer{1}, false, "text", []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, recordOp(r))
	}
	ops[0].Value = ops[1].Value
	whole := Op{Bucket: BucketRecords, Key: ops[1].Key, Record: ops[1].Record}
	e, _ := New(Config{Self: NodeID{1}, Random: func(int) int { return 0 }}, at(simStart), []Op{whole})
	if r := e.Record(key); r == nil || string(r.Body) != "two" {
		t.Errorf("loaded %v without its encoding", r)
	}
	e, _ = New(Config{Self: NodeID{1}, Random: func(int) int { return 0 }}, at(simStart), ops[:1])
	if e.Record(key) != nil || e.Stats().Counters["damaged"] != 1 {
		t.Errorf("loaded %v", e.Record(key))
	}
}

// TestOtherCluster checks that records and manifests of another cluster are refused and counted,
// and that those of this cluster and of earlier builds are accepted.
func TestOtherCluster(t *testing.T) {
	for cluster, accepted := range map[string]bool{"": true, "here": true, "there": false} {
		config := Config{Self: NodeID{9}, Member: "peer", Cluster: cluster, Random: func(int) int { return 0 }}
		writer, _ := New(config, at(simStart), nil)
		records, _, err := writer.Prepare(at(simStart), []Put{{Key: newKey, Body: []byte("x")}})
		if err != nil {
			t.Fatal(err)
		}
		writer.Step(at(simStart), Own{Items: ownItems(1, "x")})
		e, _ := New(Config{Self: NodeID{1}, Member: "self", Cluster: "here", Random: func(int) int { return 0 }},
			at(simStart), nil)
		m := message{From: "peer", Records: records, Manifests: []*Manifest{writer.Manifest(NodeID{9})},
			Bodies: [][]byte{ownItems(1, "x")[0].Body}}
		e.Step(at(simStart), Received{m.encode()})
		if r, x := e.Record(newKey), e.Manifest(NodeID{9}); (r != nil) != accepted || (x != nil) != accepted {
			t.Errorf("cluster %q: record %v, manifest %v", cluster, r, x)
		}
		if n := e.Stats().Counters["refused: other cluster"]; (n == 2) == accepted {
			t.Errorf("cluster %q: %d refusals", cluster, n)
		}
	}
}
