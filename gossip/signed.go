package gossip

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// A node with a key signs its metadata, its probe responses, and its questions and answers. A
// signature is bound to the cluster and the address of the member, or to the receiver.

const (
	domainFrame = "nearside frame signature"
	domainAck   = "nearside probe response signature"

	ackSigned = engine.AckSize + 8 + 4 // bytes under the signature: root, clock, members, number
)

var (
	errUnsigned = errors.New("the member has no signature, and this node knows the key of its ID")
	errMany     = errors.New("there are too many members")
	errName     = errors.New("the member name does not match its node and epoch")
)

// identities holds the verified metadata of members, so each is verified once. It is bounded.
type identities struct {
	mu       sync.Mutex
	verified map[string]*identityCard // mu; by member name
	keys     map[engine.NodeID]bool   // mu; nodes that sign
	limit    int
	listed   func(name string) bool // whether memberlist counts a member as alive; it is not dropped
	acks     atomic.Uint32          // probe responses of this node
}

// identityCard is verified metadata.
type identityCard struct {
	meta  []byte
	addr  netip.AddrPort
	key   ed25519.PublicKey
	acked uint32 // number of the last probe response
}

func (i *identities) init(limit int, listed func(string) bool) {
	i.verified, i.keys, i.limit, i.listed = map[string]*identityCard{}, map[engine.NodeID]bool{}, limit, listed
}

// know records that a node signs, so nothing unsigned is accepted from it.
func (i *identities) know(id engine.NodeID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.add(id)
}

func (i *identities) add(id engine.NodeID) {
	if !i.keys[id] && len(i.keys) >= 2*i.limit {
		for other := range i.keys {
			delete(i.keys, other)
			break
		}
	}
	i.keys[id] = true
}

// signs reports whether a node is known to sign.
func (i *identities) signs(id engine.NodeID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[id]
}

// check verifies the metadata of a member, or finds it in the cache.
func (i *identities) check(o *memberlist.Node, m *meta, cluster string) error {
	if m.signature == "" {
		if i.signs(m.node) {
			return errUnsigned
		}
		return nil
	}
	addr := addrOf(o)
	i.mu.Lock()
	card := i.verified[o.Name]
	i.mu.Unlock()
	if card != nil && card.addr == addr && slices.Equal(card.meta, o.Meta) {
		return nil
	}
	if err := m.verify(o.Meta, cluster, addr); err != nil {
		return err
	}
	next := &identityCard{meta: slices.Clone(o.Meta), addr: addr,
		key: ed25519.PublicKey(m.signature[:ed25519.PublicKeySize])}
	if card != nil {
		next.acked = card.acked
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.verified) >= 4*i.limit { // about half of them are listed at most
		for name := range i.verified {
			if !i.listed(name) {
				delete(i.verified, name)
				break
			}
		}
	}
	i.verified[o.Name] = next
	i.add(m.node)
	return nil
}

// addrOf returns the address of a member.
func addrOf(o *memberlist.Node) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(o.Addr)
	return netip.AddrPortFrom(ip.Unmap(), o.Port)
}

// signAck appends a number and a signature to the payload of a probe response.
func (i *identities) signAck(b []byte, self *self) []byte {
	b = binary.BigEndian.AppendUint32(b, i.acks.Add(1))
	signature, err := sign.Make(self.signer, domainAck, append([]byte(self.member+"\x00"), b...))
	if err != nil {
		return nil // peers ignore a response without a payload
	}
	return append(b, signature[ed25519.PublicKeySize:]...)
}

// checkAck reports whether the payload of a probe response is of the member: a member that signs
// also signs its responses, and each response is accepted once.
func (i *identities) checkAck(member string, payload []byte) bool {
	i.mu.Lock()
	card := i.verified[member]
	i.mu.Unlock()
	id, _, err := engine.ParseMemberName(member)
	if card == nil {
		return err == nil && !i.signs(id)
	}
	if len(payload) != ackSigned+ed25519.SignatureSize {
		return false
	}
	number := binary.BigEndian.Uint32(payload[ackSigned-4:])
	content := append([]byte(member+"\x00"), payload[:ackSigned]...)
	if _, err := sign.Verify(domainAck, content, slices.Concat(card.key, payload[ackSigned:])); err != nil {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	fresh := number > card.acked
	card.acked = max(card.acked, number)
	return fresh
}

// sealFrame signs a frame for one receiver.
func sealFrame(s sign.Signer, to string, frame []byte) ([]byte, error) {
	signature, err := sign.Make(s, domainFrame, append([]byte(to+"\x00"), frame...))
	if err != nil {
		return nil, fmt.Errorf("gossip: sign a frame: %w", err)
	}
	return slices.Concat([]byte{frameSigned}, signature, frame), nil
}

// frame is a decoded question, answer, or probe.
type frame struct {
	kind   byte
	number uint64
	from   string // member name of the sender
	text   []byte

	signature, content []byte // of a signed frame
}

// decodeFrame decodes a frame. It retains b.
func decodeFrame(b []byte) (f frame, ok bool) {
	if b[0] == frameSigned {
		if len(b) < 1+sign.Size+frameHead {
			return f, false
		}
		f.signature, b = b[1:1+sign.Size], b[1+sign.Size:]
		f.content = b
	}
	if len(b) < frameHead || len(b) < frameHead+int(b[frameHead-1]) || b[0] < frameQuestion || b[0] > frameProbe {
		return f, false
	}
	size := int(b[frameHead-1])
	f.kind, f.number = b[0], binary.BigEndian.Uint64(b[1:])
	f.from, f.text = string(b[frameHead:frameHead+size]), b[frameHead+size:]
	return f, len(f.text) <= MaxQuestion
}

// signedBy reports whether a node has signed a frame for the receiver.
func (f *frame) signedBy(id engine.NodeID, receiver string) bool {
	if f.signature == nil || sign.Claimed(f.signature) != sign.ID(id) {
		return false
	}
	_, err := sign.Verify(domainFrame, append([]byte(receiver+"\x00"), f.content...), f.signature)
	return err == nil
}
