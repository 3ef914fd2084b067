package gossip

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// hostile is a process with the key of the pool that announces any metadata.
type hostile struct {
	*memberlist.Memberlist
	addr netip.AddrPort
	got  chan []byte
}

type hostileDelegate struct {
	meta func(netip.AddrPort) []byte
	h    *hostile
}

func (d hostileDelegate) NodeMeta(int) []byte             { return d.meta(d.h.addr) }
func (d hostileDelegate) GetBroadcasts(int, int) [][]byte { return nil }
func (d hostileDelegate) LocalState(bool) []byte          { return nil }
func (d hostileDelegate) MergeRemoteState([]byte, bool)   {}
func (d hostileDelegate) NotifyMsg(b []byte) {
	select {
	case d.h.got <- bytes.Clone(b):
	default:
	}
}

// join starts a hostile member under any member name, and joins a node.
func join(t *testing.T, name string, meta func(netip.AddrPort) []byte, to running) *hostile {
	t.Helper()
	tr, err := listen(loopback, false, &transportCounters{})
	if err != nil {
		t.Fatal(err)
	}
	tr.start()
	h := &hostile{addr: tr.addr(), got: make(chan []byte, 100)}
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label, c.Transport, c.BindPort, c.EnableCompression = name, "nearside/test", tr, 0, false
	c.AdvertisePort = 0
	c.DelegateProtocolMax, c.LogOutput = 0, &logWriter{log: to.opt.Log}
	c.Delegate = hostileDelegate{meta, h}
	if c.Keyring, err = memberlist.NewKeyring([][]byte{testKey}, testKey); err != nil {
		t.Fatal(err)
	}
	if h.Memberlist, err = memberlist.Create(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Shutdown() })
	_, _ = h.Join([]string{to.Addr().String()})
	return h
}

// signedMetaOf returns metadata of node i that is signed by key i.
func signedMetaOf(i int, m meta) func(netip.AddrPort) []byte {
	return func(addr netip.AddrPort) []byte {
		m.node, m.protocol, m.features = keyID(i), Protocol{1, 1}, ownFeatures
		b, err := m.sign(signerOf(i), "test", addr)
		if err != nil {
			panic(err)
		}
		return b
	}
}

func always(b []byte) func(netip.AddrPort) []byte { return func(netip.AddrPort) []byte { return b } }

// metaAt returns the metadata that a node announces.
func metaAt(n running) []byte { return bytes.Clone(n.membership().LocalNode().Meta) }

// TestImpersonation lets a process with the key of the pool announce itself as a member in several
// ways. Peers keep the member at its address.
func TestImpersonation(t *testing.T) {
	var log logBuffer
	a := signedNode(t, 1, Options{Log: log.logger()})
	store := newMemory()
	victim := signedNode(t, 2, Options{Storage: store}, a)
	waitFor(t, a, "two members", members(a, 2))
	first, firstName := metaAt(victim), victim.self.Load().member
	victim.stop()
	victim = signedNode(t, 2, Options{Storage: store, Now: func() time.Time { return time.Now().Add(time.Minute) }}, a)
	if err := victim.SetOwn(item("victim")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, a, "the restart", func() bool {
		return address(a, keyID(2)) == victim.Addr().String() && owns([]running{a}, "victim", keyID(2))()
	})
	present, name := metaAt(victim), victim.self.Load().member
	later := meta{node: keyID(2), epoch: 1 << 39, name: "node-2", protocol: Protocol{1, 1}, features: ownFeatures}
	foreign := later
	for what, c := range map[string]struct {
		name string
		meta func(netip.AddrPort) []byte
	}{
		"replayed metadata":              {name, always(present)},
		"replayed metadata of earlier":   {firstName, always(first)},
		"no signature":                   {name, always(later.encode())},
		"no signature and a later epoch": {later.member(), always(later.encode())},
		"the signature of another key": {later.member(), func(addr netip.AddrPort) []byte {
			b, _ := foreign.sign(signerOf(3), "test", addr)
			return b
		}},
		"another cluster": {later.member(), func(addr netip.AddrPort) []byte {
			b, _ := later.sign(signerOf(2), "other", addr)
			return b
		}},
		"bytes after the signature": {later.member(), func(addr netip.AddrPort) []byte {
			b, _ := later.sign(signerOf(2), "test", addr)
			return append(b, 0x78, 1)
		}},
	} {
		before := a.Stats().Refused
		join(t, c.name, c.meta, a)
		waitFor(t, a, what+" is refused", func() bool { return a.Stats().Refused > before })
		if got := address(a, keyID(2)); got != victim.Addr().String() {
			t.Errorf("%s: the victim is at %q, want %s", what, got, victim.Addr())
		}
	}
	// Another key with the name of the victim.
	squatter := join(t, engine.MemberName(keyID(4), 7), signedMetaOf(4, meta{epoch: 7, name: "node-2"}), a)
	waitFor(t, a, "the squatter is listed", func() bool {
		m, _ := lookUp(a, keyID(4))
		return m.State == StateRefused && m.Signed && strings.Contains(m.Reason, keyID(2).String())
	})
	if _, err := a.Ask(t.Context(), keyID(4), nil); err == nil {
		t.Error("a refused member gets messages")
	}
	_ = squatter.Leave(0)
	_ = squatter.Shutdown()
	if alive(a) != 2 || !owns([]running{a}, "victim", keyID(2))() || victim.Self() != keyID(2) {
		t.Errorf("members %+v", a.Members())
	}
	stopAll([]running{a, victim})
}

// TestAdmission lets one process join eight times. Members that the caller does not admit get no
// messages; after a change of mind they are used, and back.
func TestAdmission(t *testing.T) {
	admitted := make(chan bool, 1)
	admitted <- false
	admit := func(m Identity) string {
		ok := <-admitted
		admitted <- ok
		if ok || m.Node == keyID(2) && m.Signed && m.Name == "node-2" && m.Addr.IsValid() {
			return ""
		}
		return "it is not enrolled"
	}
	a := signedNode(t, 1, Options{Admit: admit})
	b := signedNode(t, 2, Options{}, a)
	unsigned := meta{node: simID(77), epoch: 5, name: "old", protocol: Protocol{1, 1}}
	join(t, unsigned.member(), always(unsigned.encode()), a)
	for i := range 8 {
		join(t, engine.MemberName(keyID(10+i), 5), signedMetaOf(10+i, meta{epoch: 5, name: fmt.Sprint("many-", i)}), a)
	}
	refused := func() (n int) {
		for _, m := range a.Members() {
			if m.State == StateRefused && m.Reason == "it is not enrolled" {
				n++
			}
		}
		return n
	}
	waitFor(t, a, "nine are refused", func() bool { return refused() == 9 && alive(a) == 2 })
	a.mu.Lock()
	if len(a.addrs) != 1 {
		t.Errorf("messages go to %v", a.addrs)
	}
	a.mu.Unlock()
	<-admitted
	admitted <- true
	a.Reconsider()
	waitFor(t, a, "all are used", func() bool { return refused() == 0 && alive(a) == 11 })
	<-admitted
	admitted <- false
	a.Reconsider()
	waitFor(t, a, "nine are refused again", func() bool { return refused() == 9 && alive(a) == 2 })
	stopAll([]running{a, b})
}

// TestForgedLeave lets a process with the key of the pool announce that a member leaves. Until the
// member contradicts, a probe shows that it is alive, so its items are served without a break.
func TestForgedLeave(t *testing.T) {
	var log, contradicts logBuffer
	a := signedNode(t, 1, Options{Log: log.logger()})
	victim := signedNode(t, 2, Options{Log: contradicts.logger()}, a)
	if err := victim.SetOwn(item("victim")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, a, "the victim", owns([]running{a}, "victim", keyID(2)))
	h := join(t, victim.self.Load().member, always(metaAt(victim)), a)
	if err := h.Leave(patience); err != nil {
		t.Fatal(err)
	}
	waitFor(t, victim, "the victim contradicts", func() bool {
		return strings.Contains(contradicts.String(), "Refuting a dead message")
	})
	waitFor(t, a, "memberlist knows that it is alive", func() bool { return a.listed(victim.self.Load().member) })
	for _, event := range []string{"is dead", "has left", "has returned"} {
		if strings.Contains(log.String(), event) {
			t.Errorf("the victim %s:\n%s", event, log.String())
		}
	}
	if !owns([]running{a}, "victim", keyID(2))() {
		t.Error("the items of the victim are not served")
	}
	victim.stop() // a real death
	waitFor(t, a, "the death", func() bool { return stateOf(a, keyID(2)) == StateDead })
	a.stop()
}

// TestCopyOfKey starts a copy of a node with its key under another name. It takes a new key, and
// each of them has its name.
func TestCopyOfKey(t *testing.T) {
	a := signedNode(t, 1, Options{})
	store := newMemory()
	original := signedNode(t, 3, Options{Storage: store}, a)
	waitFor(t, a, "two members", members(a, 2))
	copied := signedNode(t, 3, Options{Name: "copy", Storage: store.clone(),
		NewID: func() (engine.NodeID, sign.Signer, error) { return keyID(9), signerOf(9), nil }}, a)
	waitFor(t, a, "both are members", func() bool {
		first, _ := lookUp(a, keyID(3))
		second, _ := lookUp(a, keyID(9))
		return first.State == StateAlive && first.Name == "node-3" && first.Addr == original.Addr() &&
			second.State == StateAlive && second.Name == "copy" && second.Addr == copied.Addr()
	})
	for _, p := range a.Names() {
		if want := map[string]int{"node-1": 1, "node-3": 3, "copy": 9}[p.Name]; p.Key != sign.ID(keyID(want)) {
			t.Errorf("%s belongs to key %s", p.Name, p.Key)
		}
	}
	stopAll([]running{a, original, copied})
}
