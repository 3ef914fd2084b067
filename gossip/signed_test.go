package gossip

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/pins"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// signerOf returns the key of node i.
func signerOf(i int) sign.Signer {
	return sign.Key(ed25519.NewKeyFromSeed(binary.BigEndian.AppendUint64(make([]byte, 24), uint64(i))))
}

func keyID(i int) engine.NodeID { return engine.NodeID(sign.Fingerprint(signerOf(i).Public())) }

// signedNode starts a node with a key on real sockets.
func signedNode(t *testing.T, i int, o Options, seeds ...running) running {
	t.Helper()
	o.Self, o.Signer = keyID(i), signerOf(i)
	if o.Name == "" {
		o.Name = fmt.Sprint("node-", i)
	}
	o.Bind = loopback
	o.Seeds = func() (out []string) {
		for _, s := range seeds {
			out = append(out, s.Addr().String())
		}
		return out
	}
	return run(t, o)
}

// TestForgedFrames checks that a node believes only signed probes, questions, and answers of a
// member that signs, and that they are valid for one receiver.
func TestForgedFrames(t *testing.T) {
	asked := make(chan string, 10)
	a := signedNode(t, 1, Options{Answer: func(_ context.Context, q []byte) []byte {
		asked <- string(q)
		return q
	}, NewID: func() (engine.NodeID, sign.Signer, error) { return keyID(9), signerOf(9), nil }})
	b := signedNode(t, 2,
		Options{Answer: func(_ context.Context, q []byte) []byte { return append([]byte("re: "), q...) }}, a)
	waitFor(t, a, "two members", members(a, 2))
	waitFor(t, b, "two members", members(b, 2))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got, err := a.Ask(ctx, keyID(2), []byte("x")); err != nil || string(got) != "re: x" {
		t.Fatalf("%q, %v", got, err)
	}
	own, of := a.self.Load().member, b.self.Load().member
	plain := func(kind byte, number uint64, from, text string) []byte {
		b := binary.BigEndian.AppendUint64([]byte{kind}, number)
		return append(append(append(b, byte(len(from))), from...), text...)
	}
	seal := func(i int, to string, b []byte) []byte {
		out, err := sealFrame(signerOf(i), to, b)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	number, answer, end := a.questions.open(keyID(2))
	defer end()
	forged := func(what string, b []byte) {
		t.Helper()
		before := a.Stats().Forged
		if !a.handleFrame(b) {
			t.Errorf("%s: not handled", what)
		}
		waitFor(t, a, what+" is counted", func() bool { return a.Stats().Forged == before+1 })
	}
	forged("an unsigned answer", plain(frameAnswer, number, of, "evil"))
	forged("an answer of another key", seal(3, own, plain(frameAnswer, number, of, "evil")))
	forged("an answer to another node", seal(2, of, plain(frameAnswer, number, of, "evil")))
	forged("an unsigned question", plain(frameQuestion, 1, of, "evil"))
	forged("a question of another key", seal(3, own, plain(frameQuestion, 1, of, "evil")))
	rival := engine.MemberName(keyID(1), 1) // it would have started first
	forged("an unsigned probe", plain(frameProbe, 1, rival, own+"\n127.0.0.1:1"))
	forged("a probe of another key", seal(3, own, plain(frameProbe, 1, rival, own+"\n127.0.0.1:1")))
	select {
	case q := <-asked:
		t.Errorf("question %q was answered", q)
	case x := <-answer:
		t.Errorf("answer %q was accepted", x)
	default:
	}
	a.handleFrame(seal(2, own, plain(frameAnswer, number, of, "true")))
	if x := <-answer; string(x) != "true" {
		t.Errorf("answer %q", x)
	}
	for _, junk := range []string{"\xe4", "\xe4" + strings.Repeat("x", 200), "\xe4" + strings.Repeat("x", 96) + "\xe1"} {
		if !a.handleFrame([]byte(junk)) {
			t.Errorf("%.10q is no frame", junk)
		}
	}
	if a.Self() != keyID(1) || a.Stats().Cloned != "" {
		t.Errorf("ID %s, report %q", a.Self(), a.Stats().Cloned)
	}
	stopAll([]running{a, b})
}

// TestProbeNeedsKey checks that a process that listens at the address of a member, and does not
// have its key, does not count as the member.
func TestProbeNeedsKey(t *testing.T) {
	a := signedNode(t, 1, Options{})
	h := join(t, engine.MemberName(keyID(3), 5), signedMetaOf(3, meta{epoch: 5, name: "liar"}), a)
	waitFor(t, a, "two members", members(a, 2))
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { // it answers all probes without its key
		defer close(ended)
		for {
			var b []byte
			select {
			case b = <-h.got:
			case <-end:
				return
			}
			if f, ok := decodeFrame(b); ok && f.kind == frameProbe {
				from := engine.MemberName(keyID(3), 5)
				out := binary.BigEndian.AppendUint64([]byte{frameAnswer}, f.number)
				out = append(append(append(out, byte(len(from))), from...), "alive"...)
				_ = h.SendToAddress(memberlist.Address{Addr: a.Addr().String(), Name: f.from}, out)
			}
		}
	}()
	m := meta{node: keyID(3), epoch: 5, features: ownFeatures, signature: "yes"}
	if a.probe(t.Context(), memberEvent{name: m.member(), meta: m, addr: h.addr}) {
		t.Error("an answer without the key is a proof")
	}
	m.signature, m.features = "", FeatureProbe
	if !a.probe(t.Context(), memberEvent{name: m.member(), meta: m, addr: h.addr}) {
		t.Error("a member without a key cannot answer")
	}
	a.stop()
	_ = h.Shutdown()
	close(end) // memberlist may still deliver to h.got
	<-ended
}

// TestForgedProbeResponses checks that the clock and root of a member that signs come only from
// responses that it has signed, each of which counts once.
func TestForgedProbeResponses(t *testing.T) {
	i := &identities{}
	i.init(10, func(string) bool { return false })
	addr := netip.MustParseAddrPort("10.0.0.1:7946")
	name := engine.MemberName(keyID(1), 5)
	node := &memberlist.Node{Name: name, Addr: net.IP(addr.Addr().AsSlice()), Port: 7946,
		Meta: signedMetaOf(1, meta{epoch: 5})(addr)}
	m, err := decodeMeta(node.Meta)
	if err != nil || i.check(node, &m, "test") != nil {
		t.Fatal(err, i.check(node, &m, "test"))
	}
	peer := &identities{}
	payload := func(key int, member string) []byte {
		b := binary.BigEndian.AppendUint64(engine.AckPayload(engine.Digest{1}, time.Now()), 7)
		return peer.signAck(b, &self{member: member, signer: signerOf(key)})
	}
	first, second := payload(1, name), payload(1, name)
	damaged := bytes.Clone(second)
	damaged[3] ^= 1
	for _, c := range []struct {
		what   string
		member string
		b      []byte
		want   bool
	}{
		{"unsigned", name, first[:engine.AckSize+8], false},
		{"of another key", name, payload(2, name), false},
		{"of another member", name, payload(1, engine.MemberName(keyID(2), 5)), false},
		{"changed", name, damaged, false},
		{"signed", name, second, true},
		{"replayed", name, second, false},
		{"earlier", name, first, false},
		{"next", name, payload(1, name), true},
		{"of a later start of a node that signs", engine.MemberName(keyID(1), 9), payload(1, name), false},
		{"of an earlier release", engine.MemberName(simID(8), 9), first[:engine.AckSize+8], true},
	} {
		if got := i.checkAck(c.member, c.b); got != c.want {
			t.Errorf("a response that is %s: accepted %v", c.what, got)
		}
	}
}

// TestLongestMeta checks that the metadata with the longest names fits into the limit of
// memberlist.
func TestLongestMeta(t *testing.T) {
	long := strings.Repeat("x", maxMetaText)
	cluster := strings.Repeat("c", 64)
	st, err := pins.Statement(signerOf(1), cluster, long, sign.ID(keyID(2)))
	if err != nil {
		t.Fatal(err)
	}
	m := meta{node: keyID(2), epoch: 1<<64 - 1, name: long, zone: long, version: long,
		protocol: Protocol{1 << 62, 1 << 62},
		features: 1<<64 - 1, statement: string(st)}
	addr := netip.MustParseAddrPort("[2001:db8::1]:65535")
	b, err := m.sign(signerOf(2), cluster, addr)
	if err != nil || len(b) > memberlist.MetaMaxSize {
		t.Fatalf("%d bytes, at most %d are allowed: %v", len(b), memberlist.MetaMaxSize, err)
	}
	t.Logf("the longest metadata has %d of %d bytes", len(b), memberlist.MetaMaxSize)
	got, err := decodeMeta(b)
	if err != nil || got.verify(b, cluster, addr) != nil {
		t.Fatal(err, got.verify(b, cluster, addr))
	}
	if got.verify(b, cluster, netip.AddrPortFrom(addr.Addr(), 1)) == nil {
		t.Error("it is valid at another port")
	}
	m.statement = m.statement[:95] + "x"
	b, _ = m.sign(signerOf(2), cluster, addr)
	if got, err = decodeMeta(b); err != nil || got.verify(b, cluster, addr) == nil {
		t.Errorf("a forged statement is accepted: %v", err)
	}
}

// BenchmarkVerifyMembers verifies 10,000 members, first and from the cache.
func BenchmarkVerifyMembers(b *testing.B) {
	const size = 10000
	nodes, metas := make([]*memberlist.Node, size), make([]meta, size)
	for i := range nodes {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 7946)
		raw := signedMetaOf(i, meta{epoch: 5, name: fmt.Sprint("node-", i)})(addr)
		nodes[i] = &memberlist.Node{Name: engine.MemberName(keyID(i), 5), Addr: addr.Addr().AsSlice(), Port: 7946, Meta: raw}
		metas[i], _ = decodeMeta(raw)
	}
	for range b.N {
		i := &identities{}
		i.init(maxRoster, func(string) bool { return true })
		for round, what := range []string{"first", "cached"} {
			began := time.Now()
			for k, n := range nodes {
				if err := i.check(n, &metas[k], "test"); err != nil {
					b.Fatal(err)
				}
			}
			elapsed := time.Since(began)
			b.ReportMetric(float64(elapsed.Milliseconds()), what+"-ms")
			if limit := []time.Duration{1200 * time.Millisecond, 20 * time.Millisecond}[round]; elapsed > limit {
				b.Errorf("%s: %v, at most %v are allowed", what, elapsed, limit)
			}
		}
	}
}

// TestIdentitiesAreBounded checks that a process that announces many members fills no memory, and
// displaces no live member.
func TestIdentitiesAreBounded(t *testing.T) {
	i := &identities{}
	first := engine.MemberName(keyID(0), 5)
	i.init(4, func(name string) bool { return name == first })
	addr := netip.MustParseAddrPort("10.0.0.1:7946")
	for k := range 50 {
		node := &memberlist.Node{Name: engine.MemberName(keyID(k), 5), Addr: addr.Addr().AsSlice(), Port: 7946,
			Meta: signedMetaOf(k, meta{epoch: 5})(addr)}
		m, _ := decodeMeta(node.Meta)
		if err := i.check(node, &m, "test"); err != nil {
			t.Fatal(err)
		}
	}
	if len(i.verified) > 16 || len(i.keys) > 8 || i.verified[first] == nil {
		t.Errorf("%d members and %d keys are stored", len(i.verified), len(i.keys))
	}
}
