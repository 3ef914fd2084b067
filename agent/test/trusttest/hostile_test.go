package trusttest_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// hostile is a member of the pool with the gossip key. It speaks memberlist and the protocol of the
// pool, and shares no code with the product.
type hostile struct {
	t      testing.TB
	meta   metadata
	ring   []byte
	label  string
	ahead  atomic.Int64 // of its clock, in nanoseconds
	acks   atomic.Uint32
	clocks atomic.Uint32 // number of times that peers asked for its clock

	list *memberlist.Memberlist
	over *transport

	mu      sync.Mutex
	number  uint64
	waiting map[uint64]chan reply
	frames  [][]byte // messages of peers
}

// memberName returns the member name of a start of a node.
func memberName(id engine.NodeID, epoch uint64) string { return engine.MemberName(id, epoch) }

// join starts a hostile member, which contacts an address.
func join(t testing.TB, seed netip.AddrPort, m metadata) *hostile {
	t.Helper()
	h := &hostile{t: t, meta: m, ring: gossipKey(), label: "nearside/" + cluster, waiting: map[uint64]chan reply{}}
	if h.meta.epoch == 0 {
		h.meta.epoch = uint64(time.Now().Unix())
	}
	over, err := newTransport()
	if err != nil {
		t.Fatal(err)
	}
	h.over = over
	h.meta.addr = over.addr()
	c := memberlist.DefaultLANConfig()
	c.Name = memberName(m.node, h.meta.epoch)
	c.Transport = over
	c.BindPort = 0
	c.Label = h.label
	c.EnableCompression = false
	c.DelegateProtocolVersion, c.DelegateProtocolMin, c.DelegateProtocolMax = 0, 0, 0
	c.LogOutput = io.Discard
	c.Delegate, c.Ping = delegate{h}, delegate{h}
	c.Keyring, err = memberlist.NewKeyring([][]byte{h.ring}, h.ring)
	if err != nil {
		t.Fatal(err)
	}
	if h.list, err = memberlist.Create(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.leave)
	if seed.IsValid() {
		_, _ = h.list.Join([]string{seed.String()}) // a pool may refuse this member, which can send messages anyway
	}
	return h
}

// leave ends the member without a notice.
func (h *hostile) leave() { _ = h.list.Shutdown() }

// delegate implements the callbacks of memberlist.
type delegate struct{ h *hostile }

func (d delegate) NodeMeta(int) []byte                                      { return d.h.meta.encode() }
func (delegate) GetBroadcasts(int, int) [][]byte                            { return nil }
func (delegate) LocalState(bool) []byte                                     { return nil }
func (delegate) MergeRemoteState([]byte, bool)                              {}
func (delegate) NotifyPingComplete(*memberlist.Node, time.Duration, []byte) {}

// AckPayload claims a clock.
func (d delegate) AckPayload() []byte {
	d.h.clocks.Add(1)
	b := make([]byte, 1+16, 1+16+8+8)
	b[0] = 1
	now := time.Now().Add(time.Duration(d.h.ahead.Load()))
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, 0)
	if d.h.meta.key == nil {
		return b
	}
	b = binary.BigEndian.AppendUint32(b, d.h.acks.Add(1))
	member := memberName(d.h.meta.node, d.h.meta.epoch)
	s := signature(d.h.meta.key, "nearside probe response signature", append([]byte(member+"\x00"), b...))
	return append(b, s[ed25519.PublicKeySize:]...)
}

func (d delegate) NotifyMsg(b []byte) {
	if len(b) == 0 || b[0] != 1 {
		return
	}
	b = append([]byte{}, b...)
	r := decodeReply(b)
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	if len(d.h.frames) < 4096 {
		d.h.frames = append(d.h.frames, b)
	}
	if c := d.h.waiting[r.number]; c != nil {
		select {
		case c <- r:
		default:
		}
	}
}

// send sends a message to an address over TCP.
func (h *hostile) send(to netip.AddrPort, m message) {
	h.t.Helper()
	if m.from == "" {
		m.from = memberName(h.meta.node, h.meta.epoch)
	}
	h.sendBytes(to, m.encode())
}

// sendBytes sends an encoded message.
func (h *hostile) sendBytes(to netip.AddrPort, b []byte) {
	h.t.Helper()
	err := h.list.SendReliable(&memberlist.Node{Addr: to.Addr().AsSlice(), Port: to.Port()}, b)
	if err != nil {
		h.t.Logf("a message was not sent: %v", err) // the connection may be refused
	}
}

// ask sends a message with a request for entries, and returns the reply, or nothing if the peer
// does not answer this member in time. A peer processes the message before it answers.
func (h *hostile) ask(to netip.AddrPort, m message, patience time.Duration) (out reply, ok bool) {
	h.t.Helper()
	c := make(chan reply, 64)
	h.mu.Lock()
	h.number++
	m.request = h.number
	h.waiting[m.request] = c
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiting, m.request)
	}()
	if len(m.want) == 0 {
		m.want = []engine.Slot{{1}} // no node has it, so the reply is empty
	}
	h.send(to, m)
	late := time.After(patience)
	for {
		select {
		case r := <-c:
			out.records = append(out.records, r.records...)
			out.manifests = append(out.manifests, r.manifests...)
			if r.last {
				return out, true
			}
		case <-late:
			return out, false
		}
	}
}

// recorded returns the messages that peers sent to this member.
func (h *hostile) recorded() [][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([][]byte(nil), h.frames...)
}

// Types of memberlist's messages.
const (
	rawSuspect = 3
	rawAlive   = 4
	rawDead    = 5
)

// raw sends a message of memberlist in the name of any member, as one UDP packet. Its fields are
// encoded like those of a struct.
func (h *hostile) raw(to netip.AddrPort, kind byte, fields ...any) {
	h.t.Helper()
	b := append([]byte{kind}, 0x80|byte(len(fields)/2))
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b = appendRaw(b, []byte(f))
		case []byte:
			b = appendRaw(b, f)
		case uint32:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), f)
		case uint16:
			b = binary.BigEndian.AppendUint16(append(b, 0xcd), f)
		}
	}
	block, _ := aes.NewCipher(h.ring)
	gcm, _ := cipher.NewGCM(block)
	nonce := make([]byte, gcm.NonceSize())
	_, _ = rand.Read(nonce)
	sealed := gcm.Seal(append([]byte{1}, nonce...), nonce, b, []byte(h.label))
	out := append([]byte{244, byte(len(h.label))}, h.label...)
	if _, err := h.over.WriteTo(append(out, sealed...), to.String()); err != nil {
		h.t.Error(err)
	}
}

func appendRaw(b, v []byte) []byte {
	if len(v) < 32 {
		b = append(b, 0xa0|byte(len(v)))
	} else {
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(v)))
	}
	return append(b, v...)
}

// alive claims that a member with this metadata is at an address.
func (h *hostile) alive(to netip.AddrPort, member string, at netip.AddrPort, incarnation uint32, meta []byte) {
	h.raw(to, rawAlive, "Incarnation", incarnation, "Node", member, "Addr", at.Addr().AsSlice(), "Port", at.Port(),
		"Meta", meta, "Vsn", []byte{1, 5, 2, 0, 0, 0})
}

// dead claims that a member is dead. If from is the member, it claims that the member has left.
func (h *hostile) dead(to netip.AddrPort, member, from string, incarnation uint32) {
	h.raw(to, rawDead, "Incarnation", incarnation, "Node", member, "From", from)
}

// newKey returns a key and the ID of its node.
func newKey() (ed25519.PrivateKey, engine.NodeID) {
	pub, priv, _ := ed25519.GenerateKey(nil)
	return priv, idOf(pub)
}

// await waits until a condition holds, and reports whether it did.
func await(ctx context.Context, holds func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// members returns the member names of all others.
func (h *hostile) members() (out []string) {
	for _, m := range h.list.Members() {
		if m.Name != memberName(h.meta.node, h.meta.epoch) {
			out = append(out, m.Name)
		}
	}
	return out
}

// metadata returns the metadata of all others by member name.
func (h *hostile) metadata() map[string][]byte {
	out := map[string][]byte{}
	for _, m := range h.list.Members() {
		if m.Name != memberName(h.meta.node, h.meta.epoch) {
			out[m.Name] = m.Meta
		}
	}
	return out
}
