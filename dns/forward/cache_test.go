package forward

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

// cachedQuestion returns a question, and an answer with one address.
func cachedQuestion(t testing.TB, name string) (question, answer) {
	t.Helper()
	wire, err := table.AppendName(nil, name)
	if err != nil {
		t.Fatal(err)
	}
	m := new(mdns.Msg)
	m.SetQuestion(mdns.Fqdn(name), mdns.TypeA)
	m.Response, m.Compress = true, true
	m.Answer = records(t, mdns.Fqdn(name)+" 60 IN A 192.0.2.1")
	b := packed(t, m)
	var r response
	if !r.read(b) || !r.whole {
		t.Fatal("not a response")
	}
	a, _, err := r.answer(nil, wire)
	if err != nil {
		t.Fatal(err)
	}
	return question{name: wire, qtype: mdns.TypeA}, a
}

// The cache never exceeds its size, and names that are used often survive a flood of names that
// are used once.
func TestCacheIsBounded(t *testing.T) {
	c := newCache(1 << 20)
	by := client{question: make([]byte, 4)}
	hot := map[string]bool{}
	look := func(q *question) bool {
		by.question = append(append(by.question[:0], q.name...), 0, 1, 0, 1)
		_, r := c.appendReply(nil, q, c.hash(q), &by, 512, 1)
		return r != cacheMissed
	}
	for i := range 50000 {
		if i < 200 {
			hot[fmt.Sprintf("hot%d.example.org", i)] = true
		}
		q, a := cachedQuestion(t, fmt.Sprintf("n%d.example.org", i))
		c.put(&q, c.hash(&q), a, 1, 60)
		if i == 0 || i%1000 == 0 {
			for name := range hot {
				q, a := cachedQuestion(t, name)
				if !look(&q) {
					if i > 2000 {
						t.Fatalf("%s is gone after %d names", name, i)
					}
					c.put(&q, c.hash(&q), a, 1, 60)
				}
			}
		}
	}
	st := c.stats()
	if st.Bytes > 1<<20 || st.Entries < 3000 || st.Evicted == 0 {
		t.Errorf("the cache has %+v", st)
	}
	if per := st.Bytes / st.Entries; per > 400 {
		t.Errorf("%d bytes for an answer", per)
	}
}

// After any operations, the cache either has the last answer that was put, or none.
func TestCacheAgainstModel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	c := newCache(200 << 10)
	model := map[string]uint32{}
	for i := range 30000 {
		name := fmt.Sprintf("n%d.example.org", r.IntN(2000))
		q, a := cachedQuestion(t, name)
		h := c.hash(&q)
		switch r.IntN(4) {
		case 0:
			binary.BigEndian.PutUint32(a.data[a.size-4:], uint32(i)) // the address
			c.put(&q, h, a, 1, 60)
			model[name] = uint32(i)
		case 1:
			c.forget(&q, h)
			delete(model, name)
		default:
			by := client{question: append(append([]byte(nil), q.name...), 0, 1, 0, 1)}
			out, got := c.appendReply(nil, &q, h, &by, 512, 1)
			want, ok := model[name]
			if got != cacheMissed && (!ok || binary.BigEndian.Uint32(out[len(out)-4:]) != want) {
				t.Fatalf("%s has %x, want %x (%v)", name, out, want, ok)
			}
		}
	}
	entries := 0
	for i := range c.shards {
		s := &c.shards[i]
		n, used := 0, 0
		for j := s.newest; j >= 0; j = s.entries[j].older {
			n, used = n+1, used+cap(s.entries[j].data)+entryBytes
		}
		if n != s.count || used != s.used || used > s.limit {
			t.Errorf("shard %d has %d entries of %d bytes, and says %d and %d", i, n, used, s.count, s.used)
		}
		entries += n
	}
	if entries == 0 {
		t.Error("nothing is kept")
	}
}

// loopback is a Replier that signals each reply.
type loopback chan struct{}

func (l loopback) Reply(ReplyTo, []byte) { l <- struct{}{} }

// TestForwardAllocations: a hit allocates nothing. A miss allocates what miekg/dns needs to read
// and pack an answer of one record: 9 allocations, and one for the cached bytes.
func TestForwardAllocations(t *testing.T) {
	f, stop := benchForwarder(t)
	defer stop()
	m := message(t, "hit.example.org")
	var q table.Query
	q.Read(m)
	done := make(loopback, 1)
	to := ReplyTo{Via: done, Max: 1232}
	f.Ask(&q, m, to)
	<-done
	out := make([]byte, 0, 2048)
	if n := testing.AllocsPerRun(1000, func() {
		if _, ok := f.Cached(&q, m, out, &ReplyTo{Max: 1232, At: f.Now()}); !ok {
			t.Fatal("not in the cache")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a hit", n)
	}
	i := uint32(0)
	m = message(t, "aaaa.example.org")
	if n := testing.AllocsPerRun(5000, func() {
		i++
		binary.BigEndian.PutUint32(m[table.HeaderLen+1:], 'a'<<24|(i%26+'a')<<16|(i/26%26+'a')<<8|(i/676%26+'a'))
		q.Read(m)
		if f.Ask(&q, m, to) {
			<-done
		}
	}); n > 10 {
		t.Errorf("%v allocations for a miss", n)
	}
}

// benchForwarder returns a forwarder with a fast server that answers each query with one record.
func benchForwarder(t testing.TB) (*Forwarder, func()) {
	s := echoServer(t)
	f, err := New(Options{Servers: s})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	<-f.Started()
	return f, func() { cancel(); <-ended }
}

func BenchmarkHit(b *testing.B) {
	f, stop := benchForwarder(b)
	defer stop()
	m := message(b, "hit.example.org")
	var q table.Query
	q.Read(m)
	done := make(loopback, 1)
	f.Ask(&q, m, ReplyTo{Via: done, Max: 1232})
	<-done
	out := make([]byte, 0, 2048)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := f.Cached(&q, m, out, &ReplyTo{Max: 1232}); !ok {
			b.Fatal("not in the cache")
		}
	}
}

// BenchmarkMiss has 64 questions in flight. The measured time includes the server's.
func BenchmarkMiss(b *testing.B) {
	f, stop := benchForwarder(b)
	defer stop()
	m := message(b, "aaaaaaaa.example.org")
	var q table.Query
	done := make(loopback, 64)
	i, flying := uint64(0), 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		for j, x := 0, i; j < 8; j, x = j+1, x/26 {
			m[table.HeaderLen+1+j] = byte('a' + x%26)
		}
		q.Read(m)
		if f.Ask(&q, m, ReplyTo{Via: done, Max: 1232}) {
			flying++
		}
		if flying >= 64 {
			<-done
			flying--
		}
	}
	for ; flying > 0; flying-- {
		<-done
	}
}
