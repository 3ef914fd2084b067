package engine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

func manySaved(b *testing.B, n int) []Op {
	var saved []Op
	for i := range n {
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, nil, record.Wall(simStart),
			Writer{byte(i), byte(i >> 8)}, false, "application/json", []byte(strings.Repeat("x", 650)))
		if err != nil {
			b.Fatal(err)
		}
		saved = append(saved, recordOp(r))
	}
	return saved
}

// BenchmarkLoad measures a start with 100,000 records of 730 bytes on disk. The heap holds the
// records once, because they share the saved bytes.
func BenchmarkLoad(b *testing.B) {
	saved := manySaved(b, 100000)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		e, _ := New(Config{Self: NodeID{1}, Random: rand.IntN, Limits: Limits{WriterRecords: 1 << 20}}, at(simStart), saved)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-beside-records")
		runtime.KeepAlive(e)
	}
}

// BenchmarkReceive measures receiving a record of 1 KB with 100,000 records stored.
func BenchmarkReceive(b *testing.B) {
	e, _ := New(Config{Self: NodeID{1}, Member: "self", Random: rand.IntN, Limits: Limits{WriterRecords: 1 << 20}},
		at(simStart), manySaved(b, 100000))
	for i := range 10 {
		e.Step(at(simStart), PeerUp{Member: fmt.Sprint("peer-", i), Node: NodeID{byte(i + 2)}, Features: Features})
	}
	now, i := simStart, 0
	body := []byte(strings.Repeat("y", 900))
	b.ReportAllocs()
	for b.Loop() {
		now, i = now.Add(10*time.Millisecond), i+1
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i % 100000)}, nil, record.Wall(now), Writer{byte(i)},
			false, "text", body)
		if err != nil {
			b.Fatal(err)
		}
		e.Step(at(now), Received{(&message{From: "peer-1", Records: []*Record{r}}).encode()})
	}
}

// BenchmarkOwn measures a change of one of 5,000 items of this node.
func BenchmarkOwn(b *testing.B) {
	e, _ := New(Config{Self: NodeID{1}, Random: rand.IntN}, at(simStart), nil)
	items := ownItems(5000, strings.Repeat("x", 600))
	e.Step(at(simStart), Own{Items: items})
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		items = slices.Clone(items)
		items[i%5000].Body = fmt.Append(nil, i)
		e.Step(at(simStart), Own{Items: items})
	}
}

// benchSaved returns signed records of about 750 bytes by one key, as saved values.
func benchSaved(b *testing.B, n int, s sign.Signer) []Op {
	var saved []Op
	for i := range n {
		r := signed(b, s, Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, strings.Repeat("x", 650))
		slot := r.Key.Slot()
		saved = append(saved, Op{Bucket: BucketRecords, Key: string(slot[:]), Value: r.Encoded()})
	}
	return append(saved, Op{Bucket: bucketMeta, Key: metaEpoch, Value: putNumber(7)})
}

// BenchmarkLoadSigned measures a start with 10,000 signed records on disk: usually, and after an
// earlier build, whose entries are verified.
func BenchmarkLoadSigned(b *testing.B) {
	saved := benchSaved(b, 10000, testKey(1))
	for name, saved := range map[string][]Op{"verified-before": append(slices.Clone(saved),
		Op{Bucket: bucketMeta, Key: metaVerified, Value: putNumber(7)}), "after-earlier-build": saved} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				e, _ := New(Config{Self: NodeID{1}, Random: rand.IntN, Cluster: "here"}, at(simStart), saved)
				if len(e.Versions()) != 10000 {
					b.Fatal(len(e.Versions()))
				}
			}
		})
	}
}

// BenchmarkChange measures a change of 900 bytes on a node and its receipt by another, unsigned and
// signed in turn.
func BenchmarkChange(b *testing.B) {
	type pair struct{ writer, reader *Engine }
	var pairs []pair
	for _, s := range []sign.Signer{nil, testKey(1)} {
		var p pair
		for i, e := range []**Engine{&p.writer, &p.reader} {
			cfg := Config{Self: NodeID{byte(i + 1)}, Member: fmt.Sprint("member-", i), Name: fmt.Sprint(i), Cluster: "here",
				Random: rand.IntN, Limits: Limits{WriterRecords: 1 << 20}}
			if s != nil {
				cfg.Signer = testKey(byte(i + 1))
				cfg.Self = nodeOf(cfg.Signer)
			}
			*e, _ = New(cfg, at(simStart), nil)
		}
		p.writer.Step(at(simStart), PeerUp{Member: "member-1", Node: p.reader.Self(), Features: Features})
		p.reader.Step(at(simStart), PeerUp{Member: "member-0", Node: p.writer.Self(), Features: Features})
		pairs = append(pairs, p)
	}
	now, n := simStart, 0
	var spent [2]time.Duration
	for b.Loop() {
		now, n = now.Add(100*time.Millisecond), n+1
		for i, p := range pairs {
			began := time.Now()
			r, _, err := p.writer.Prepare(at(now), []Put{{Key: Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(n % 1000)},
				Body: fmt.Appendf(nil, "%0700d", n)}})
			if err != nil {
				b.Fatal(err)
			}
			p.writer.Step(at(now), Committed{r})
			p.reader.Step(at(now), Received{(&message{From: "member-0", Records: r}).encode()})
			spent[i] += time.Since(began)
			if got := p.reader.Record(r[0].Key); got == nil || got.ID() != r[0].ID() {
				b.Fatal("not received")
			}
		}
	}
	b.ReportMetric(float64(spent[0].Microseconds())/float64(n), "us-unsigned")
	b.ReportMetric(float64(spent[1].Microseconds())/float64(n), "us-signed")
}
