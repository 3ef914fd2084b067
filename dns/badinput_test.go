package dns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// badInput has tests of invalid input from clients, name servers, and files.
var badInput = map[string]func(*testing.T){
	"compression_loops_in_queries":                badLoops,
	"compression_loops_in_answers":                testMalformedAnswers,
	"names_of_255_bytes":                          badLongNames,
	"ten_thousand_clients":                        badManyClients,
	"slow_TCP_clients":                            badSlowReaders,
	"silent_TCP_clients":                          testTCPLimits,
	"upstream_spoofs_and_lies_about_the_question": testForgedRepliesAreIgnored,
	"upstream_spoofs_in_a_flood":                  testFloodOfForgedReplies,
	"upstream_answers_late":                       testLateAnswerCounts,
	"upstream_answers_with_64_kB":                 testLongestAnswers,
	"upstream_dies_and_comes_back":                testServerDiesAndComesBack,
	"upstream_sends_noise":                        testNoise,
	"upstream_breaks_TCP":                         testBrokenTCPUpstream,
	"upstream_answers_one_query_of_a_connection":  testServerThatAnswersOneQueryPerConnection,
	"upstream_without_EDNS":                       testServerWithoutEDNS,
	"upstream_that_does_not_resolve":              testLameServer,
	"resolv_conf_vanishes_is_empty_or_names_us":   testResolvConfIsWatched,
	"flood_bounded_memory_and_counted_refusals":   badFloodMemory,
}

func TestBadInput(t *testing.T) { runAll(t, badInput) }

func badLoops(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1"))
	head := func(extra byte) []byte { return []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, extra} }
	question := append(head(1), 3, 'w', 'e', 'b', 4, 'm', 'e', 's', 'h', 0, 0, 1, 0, 1)
	opt := []byte{0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0}
	for what, m := range map[string][]byte{
		"a pointer to itself":       append(head(0), 0xc0, 12, 0, 1, 0, 1),
		"a pointer into the header": append(head(0), 3, 'w', 'e', 'b', 0xc0, 4, 0, 1, 0, 1),
		"a pointer back":            append(head(0), 3, 'w', 'e', 'b', 0xc0, 12, 0, 1, 0, 1),
		"a pointer out":             append(head(0), 0xff, 0xff, 0, 1, 0, 1),
		"a label of another kind":   append(head(0), 0x41, 'a', 0, 0, 1, 0, 1),
	} {
		for _, tcp := range []bool{false, true} {
			if got := c.raw(tcp, m); got.Rcode != mdns.RcodeFormatError || len(got.Question) > 0 {
				t.Errorf("%s, TCP %v: %v", what, tcp, got)
			}
		}
	}
	// A pointer loop in the owner of an irrelevant record is harmless.
	loop := binary.BigEndian.AppendUint16(nil, 0xc000|uint16(len(question)))
	loop = append(loop, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0)
	m := append(bytes.Clone(question), loop...)
	if got := c.raw(false, m); firstA(got) != "240.0.0.1" {
		t.Errorf("a loop behind the question: %v", got)
	}
	m = append(bytes.Clone(question), opt...)
	m[len(question)] = 0xc0 // the name of OPT is the root
	if got := c.raw(false, m); got.Rcode != mdns.RcodeFormatError {
		t.Errorf("OPT with a name: %v", got)
	}
}

func badLongNames(t *testing.T) {
	label := strings.Repeat("a", 63)
	longest := strings.Join([]string{label, label, label, strings.Repeat("b", 56), "mesh"}, ".") // 255 bytes on the wire
	short := strings.Repeat("a.", 125) + "mesh"                                                  // 256 bytes with the root
	c := newMesh(t, nil, host(longest, "240.0.0.1"),
		table.Host{Name: "*.mesh", Addrs: addrs("240.0.0.2"), Ports: []table.Port{{Name: "http", Number: 80}}})
	c.want(longest, "A", 0, longest+". 30 IN A 240.0.0.1")
	wild := strings.NewReplacer("a", "c", "b", "d").Replace(longest)
	c.want(wild, "A", 0, wild+". 30 IN A 240.0.0.2")
	if _, errs := table.New(meshOptions, []table.Host{host(short+"x", "240.0.0.1")}); len(errs) != 1 ||
		!strings.Contains(errs[0].Error(), "at most 255 are allowed") {
		t.Errorf("a longer name: %v", errs)
	}
	long := packed(t, new(mdns.Msg).SetQuestion(longest+".", mdns.TypeA))
	over := append(append(bytes.Clone(long[:table.HeaderLen]), 1, 'x'), long[table.HeaderLen:]...)
	if got := c.raw(false, over); got.Rcode != mdns.RcodeFormatError {
		t.Errorf("a name of 257 bytes: %v", got)
	}
	forwarded := strings.TrimSuffix(longest, "mesh") + "test"
	f := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", answerA(t, "60")))
	for _, k := range append(kinds, kinds...) {
		if m := f.query(k, forwarded, mdns.TypeA); firstA(m) != "192.0.2.1" {
			t.Errorf("%+v, forwarded: %v", k, m)
		}
	}
}

// Ten thousand clients wait for 2,500 names at the same time. Each gets its own answer at its own
// address, with the question in its own spelling.
func badManyClients(t *testing.T) {
	if appendSource(nil, netip.MustParseAddr("127.0.0.1")) == nil {
		t.Skip("packets cannot be sent from many addresses here")
	}
	const n, names = 10000, 2500
	h := newHeld()
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", h.do))
	clients, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer clients.Close()
	if err := wantDestination(clients, true); err != nil {
		t.Fatal(err)
	}
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}) }
	for i := range n {
		name := fmt.Sprintf("n%d.example.org.", i%names)
		if i/names%2 == 1 {
			name = strings.ToUpper(name)
		}
		m := new(mdns.Msg).SetQuestion(name, mdns.TypeA)
		m.Id = uint16(i)
		before := c.srv.bySource(mdns.TypeA)
		if _, _, err := clients.WriteMsgUDPAddrPort(packed(t, m), appendSource(nil, addr(i)), c.addr); err != nil {
			t.Fatal(err)
		}
		if got := c.source(before, mdns.TypeA); got != fromUpstream {
			t.Fatalf("client %d: %s; %+v", i, sourceNames[got], c.f.Stats())
		}
	}
	if st := c.f.Stats(); st.InFlight != names || st.Waiting != n {
		t.Errorf("%d questions in flight and %d clients waiting", st.InFlight, st.Waiting)
	}
	queries := make([]*upstreamQuery, names)
	for i := range queries {
		queries[i] = h.next(t)
	}
	rand.Shuffle(names, func(i, j int) { queries[i], queries[j] = queries[j], queries[i] })
	seen := map[int]bool{}
	buf, oob := make([]byte, 600), make([]byte, 128)
	_ = clients.SetReadDeadline(time.Now().Add(patience))
	for _, q := range queries {
		var x int
		_, _ = fmt.Sscanf(q.name(), "n%d.", &x)
		q.Reply(t, 0, []string{q.name() + fmt.Sprintf(" 60 IN A 10.0.%d.%d", x>>8, x&255)})
		for range n / names {
			k, noob, _, _, err := clients.ReadMsgUDPAddrPort(buf, oob)
			if err != nil {
				t.Fatal(err)
			}
			m := c.unpack(buf[:k])
			i := int(m.Id)
			if to := destination(oob[:noob]); to != addr(i) || firstA(m) != fmt.Sprintf("10.0.%d.%d", i%names>>8, i%names&255) {
				t.Fatalf("client %d at %s gets %v", i, to, m)
			}
			if upper := i/names%2 == 1; upper != (m.Question[0].Name[0] == 'N') {
				t.Fatalf("client %d: %s", i, m.Question[0].Name)
			}
			seen[i] = true
		}
	}
	if len(seen) != n {
		t.Errorf("%d clients are answered", len(seen))
	}
}

// The server closes the connection of a client that does not read. Other clients are not
// affected.
func badSlowReaders(t *testing.T) {
	// The other clients are busy, and may be slow on a loaded machine.
	r := serve(t, ServerOptions{Idle: 2 * time.Second}, "127.0.0.1:0", webHost, manyHost("many.mesh", 64))
	m := framedForTest(packed(t, new(mdns.Msg).SetQuestion("many.mesh.", mdns.TypeA)))
	block := bytes.Repeat(m, 1000)
	var slow sync.WaitGroup
	for range 5 {
		c, err := net.Dial("tcp", "127.0.0.1:"+r.addr)
		if err != nil {
			t.Fatal(err)
		}
		slow.Go(func() {
			defer c.Close()
			for {
				if _, err := c.Write(block); err != nil {
					return // the server has closed
				}
			}
		})
	}
	for range 50 {
		if got := r.exchange(t, "tcp", "127.0.0.1",
			new(mdns.Msg).SetQuestion("many.mesh.", mdns.TypeA)); len(got.Answer) != 64 {
			t.Errorf("%v", got)
		}
	}
	slow.Wait()
	for late := time.Now().Add(patience); ; runtime.Gosched() {
		left := r.Conns().Open
		if left == 0 {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("%d connections are still counted", left)
		}
	}
}

// During a flood of unanswered names, memory is limited by the slots and the size of the cache,
// and refused queries are counted.
func badFloodMemory(t *testing.T) {
	c := newTester(t, forward.Options{InFlight: 1000, CacheBytes: 1 << 20},
		newScripted(t, "127.0.0.1:0", func(*upstreamQuery) {}))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	round := func(from int) (refused uint64) {
		for i := range 5000 {
			if _, ok := c.send(clientKind{}, fmt.Sprintf("%s.n%d.example", strings.Repeat("x", 60), from+i),
				mdns.TypeA); !ok {
				refused++
			}
		}
		c.until("all have failed", func() bool {
			c.clock.advance(50 * time.Millisecond)
			c.f.RunDue()
			return c.f.Stats().InFlight == 0
		})
		for range 5000 - int(refused) {
			c.answer()
		}
		return refused
	}
	refused := round(0)
	before := heap()
	for i := range 3 {
		refused += round(5000 * (i + 1))
	}
	if grown := int64(heap()) - int64(before); grown > 2<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if st := c.f.Stats(); refused != 16000 || st.Refused.InFlight != 16000 || st.Cache.Bytes > 1<<20 {
		t.Errorf("%d refused, counted %+v, the cache has %d bytes", refused, st.Refused, st.Cache.Bytes)
	}
	if n := c.srv.bySource(); n[fromNone] != 16000 || n[fromUpstream] != 4000 {
		t.Errorf("counted by source: %v", n)
	}
}

// randomMessages returns queries with faults. The sequence is always the same.
func randomMessages(n int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		r := rand.New(rand.NewPCG(5, 6))
		for range n {
			m := new(mdns.Msg).SetQuestion([]string{"web.mesh.", "x.w.mesh.", "nope.mesh.", "www.example.org.",
				"_http._tcp.web.mesh."}[r.IntN(5)], []uint16{1, 28, 33, 65, 255, 252}[r.IntN(6)])
			if r.IntN(2) == 0 {
				m.SetEdns0(uint16(r.Uint32()), r.IntN(2) == 0)
			}
			b, _ := m.Pack()
			for range r.IntN(4) {
				switch at := r.IntN(len(b)); r.IntN(4) {
				case 0:
					b[at] = byte(r.Uint32())
				case 1:
					b[at] ^= 1 << r.IntN(8)
				case 2:
					b = b[:at+1]
				default:
					b = append(b, b[at:]...)
				}
			}
			if !yield(b) {
				return
			}
		}
	}
}

// packetChecker sends messages to a server over UDP. It compares the replies with those of the
// table and with miekg/dns.
type packetChecker struct {
	a    *table.Answers
	conn net.Conn
	n    uint16
}

func newPacketChecker(t testing.TB) *packetChecker {
	j := &packetChecker{a: table.NewAnswers(mustTable(t, meshOptions,
		table.Host{Name: "web.mesh", Addrs: addrs("240.0.0.1"),
			Ports: []table.Port{{Name: "http", Number: 80}}}, host("*.w.mesh", "240.0.0.2"), host("sentinel.mesh", "240.0.0.3")),
		nil)}
	s := NewServer(ServerOptions{})
	s.Swap(j.a)
	udp, tcp, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	_ = tcp.Close()
	if j.conn, err = net.Dial("udp", udp[0].LocalAddr().String()); err != nil {
		t.Fatal(err)
	}
	ended, ctx := make(chan error, 1), t.Context()
	go func() { ended <- s.ServeUDP(ctx, udp[0]) }()
	t.Cleanup(func() { _ = j.conn.Close(); _ = udp[0].Close(); fatal(t, <-ended) })
	return j
}

func (j *packetChecker) check(t testing.TB, m []byte) {
	if len(m) > 4096+100 {
		return
	}
	j.n++
	sentinel := new(mdns.Msg).SetQuestion("sentinel.mesh.", mdns.TypeAAAA)
	sentinel.Id = j.n
	for _, b := range [][]byte{m, packed(t, sentinel)} {
		if _, err := j.conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	var q table.Query
	want, v := j.a.Resolve(&q, m, netip.Addr{}, 1, false, nil)
	switch {
	case len(m) > maxQuery || v == table.Dropped:
		want = nil
	case v == table.Forward:
		want = q.Refuse(nil, m, table.RcodeRefused)
	}
	buf := make([]byte, 65536)
	var got []byte
	for {
		_ = j.conn.SetReadDeadline(time.Now().Add(patience))
		n, err := j.conn.Read(buf)
		if err != nil {
			t.Fatalf("no reply: %v", err)
		}
		var r mdns.Msg
		if err := r.Unpack(buf[:n]); err != nil {
			t.Fatalf("a reply cannot be read: %v\n%x\n%x", err, m, buf[:n])
		}
		if r.Id == j.n && len(r.Question) == 1 && r.Question[0] == sentinel.Question[0] {
			break
		}
		got = bytes.Clone(buf[:n])
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("% x gets\n% x, want\n% x", m, got, want)
	}
	var r mdns.Msg
	if r.Unpack(m) == nil && !r.Response && len(m) <= maxQuery && got == nil {
		t.Fatalf("% x is a query, and gets no reply", m)
	}
}

func fuzzServer(t *testing.T, messages iter.Seq[[]byte]) {
	j := newPacketChecker(t)
	for m := range messages {
		j.check(t, m)
	}
}

// FuzzServer sends arbitrary bytes to a server over UDP.
func FuzzServer(f *testing.F) {
	for m := range randomMessages(50) {
		f.Add(m)
	}
	j := newPacketChecker(f)
	f.Fuzz(func(t *testing.T, m []byte) { j.check(t, m) })
}
