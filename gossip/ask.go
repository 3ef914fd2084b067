package gossip

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Questions go to one member, outside the replicated records. They fetch data on demand that only
// this member has. A frame is a type byte, a number that the answer repeats, the sender's name with
// its length, and the text. A signed frame is a type byte, a signature, and a frame: a member that
// signs is only believed in signed frames. Answers to other questions go to the member's address.
const (
	frameQuestion = 0xe1 // engine messages never start with this byte: see protocolVersion
	frameAnswer   = 0xe2
	frameProbe    = 0xe3 // its text is a member name, a line feed, and the sender's address
	frameSigned   = 0xe4 // only to members with FeatureSigned
	frameHead     = 1 + 8 + 1

	// MaxQuestion limits a question and an answer, in bytes.
	MaxQuestion = 1 << 20

	answersAtOnce = 4
	answerTime    = 10 * time.Second
)

// Errors of questions.
var (
	// ErrNoMember means that the node is not alive.
	ErrNoMember = errors.New("the node is not a live member")
	// ErrIncompatible means that the node and this one have no protocol version in common.
	ErrIncompatible = errors.New("the node has no protocol version in common with this node; upgrade the older one")
	// ErrTooLong means that a question is longer than MaxQuestion.
	ErrTooLong = errors.New("the question is too long")
)

// questions tracks questions of this node and answers to other nodes.
type questions struct {
	mu      sync.Mutex
	waiting map[uint64]waiting
	closed  bool          // no new answers start
	slots   chan struct{} // limits concurrent answers
}

// waiting is a question without an answer.
type waiting struct {
	answer chan []byte
	of     engine.NodeID // only its signed answer counts; zero: any answer, because it does not sign
}

// open returns the number of a new question, and a channel for its answer.
func (a *questions) open(of engine.NodeID) (number uint64, answer chan []byte, end func()) {
	number, answer = rand.Uint64(), make(chan []byte, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[number] = waiting{answer, of}
	return number, answer, func() {
		a.mu.Lock()
		delete(a.waiting, number)
		a.mu.Unlock()
	}
}

// close stops answering questions.
func (a *questions) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

func newQuestions() questions {
	return questions{waiting: map[uint64]waiting{}, slots: make(chan struct{}, answersAtOnce)}
}

// Ask sends a question to a node and returns the answer of its [Options.Answer]. It fails if ctx
// ends first: the node may be dead, too busy, or of a version that does not answer questions.
func (n *Node) Ask(ctx context.Context, id engine.NodeID, question []byte) ([]byte, error) {
	if len(question) > MaxQuestion {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrTooLong, len(question), MaxQuestion)
	}
	n.mu.Lock()
	k := n.roster[id]
	n.mu.Unlock()
	if k.State != StateAlive {
		return nil, ErrNoMember
	}
	if k.Incompatible {
		return nil, ErrIncompatible
	}
	if !k.Signed {
		id = engine.NodeID{}
	}
	number, answer, end := n.questions.open(id)
	defer end()
	if err := n.sendFrame(k.name, frameQuestion, number, question); err != nil {
		return nil, err
	}
	select {
	case b := <-answer:
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-n.stopped:
		return nil, ErrNoMember
	}
}

// sendFrame sends a frame to a live member.
func (n *Node) sendFrame(member string, kind byte, number uint64, text []byte) error {
	n.mu.Lock()
	addr, sealed := n.addrs[member], n.up[member].meta.features&FeatureSigned != 0
	n.mu.Unlock()
	if addr == "" {
		return ErrNoMember
	}
	return n.sendFrameTo(addr, member, sealed, frame{kind: kind, number: number, text: text})
}

// sendFrameTo sends a frame to an address, with a signature if it is sealed and this node has a
// key.
func (n *Node) sendFrameTo(addr, member string, sealed bool, f frame) error {
	list, self := n.membership(), n.self.Load()
	if list == nil {
		return ErrNoMember
	}
	b := binary.BigEndian.AppendUint64([]byte{f.kind}, f.number)
	b = append(append(append(b, byte(len(self.member))), self.member...), f.text...)
	if sealed && self.signer != nil {
		var err error
		if b, err = sealFrame(self.signer, member, b); err != nil {
			return err
		}
	}
	if err := list.SendToAddress(memberlist.Address{Addr: addr, Name: viaStream + member}, b); err != nil {
		n.counters.unsent.Add(1)
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

// handleFrame handles a frame, and reports whether b is one. It does not block.
func (n *Node) handleFrame(b []byte) bool {
	if len(b) == 0 || b[0] < frameQuestion || b[0] > frameSigned {
		return false
	}
	f, ok := decodeFrame(bytes.Clone(b))
	switch {
	case !ok:
		n.counters.badMember.Add(1)
	case f.kind == frameProbe:
		n.answerProbe(&f)
	case f.kind == frameAnswer:
		n.takeAnswer(&f)
	default:
		n.answerQuestion(&f)
	}
	return true
}

// takeAnswer passes an answer to the caller that waits for it.
func (n *Node) takeAnswer(f *frame) {
	n.questions.mu.Lock()
	w, ok := n.questions.waiting[f.number]
	n.questions.mu.Unlock()
	if !ok {
		return
	}
	if w.of != (engine.NodeID{}) && !f.signedBy(w.of, n.self.Load().member) {
		n.counters.forged.Add(1)
		return
	}
	select {
	case w.answer <- f.text:
	default: // an answer has already arrived
	}
}

// answerQuestion answers a question of a live member.
func (n *Node) answerQuestion(f *frame) {
	if n.opt.Answer == nil {
		return
	}
	n.questions.mu.Lock()
	defer n.questions.mu.Unlock()
	if n.questions.closed {
		return
	}
	select {
	case n.questions.slots <- struct{}{}:
	default:
		n.counters.inboxFull.Add(1) // the peer asks again
		return
	}
	n.wg.Go(func() {
		defer func() { <-n.questions.slots }()
		if !n.credible(f) {
			n.counters.forged.Add(1)
			return
		}
		ctx, cancel := context.WithTimeout(n.life, answerTime)
		defer cancel()
		if answer := n.opt.Answer(ctx, f.text); len(answer) > 0 && len(answer) <= MaxQuestion {
			_ = n.sendFrame(f.from, frameAnswer, f.number, answer)
		}
	})
}

// credible reports whether a question is of the member that it names: a live member that does not
// sign, or one that has signed the question.
func (n *Node) credible(f *frame) bool {
	n.mu.Lock()
	ev, ok := n.up[f.from]
	n.mu.Unlock()
	return ok && (ev.meta.signature == "" || f.signedBy(ev.meta.node, n.self.Load().member))
}

// askAlive asks a member over a stream whether it is alive. The member need not know this node. A
// member that signs proves that it has its key: it signs the random number of the question.
func (n *Node) askAlive(ctx context.Context, m memberEvent) bool {
	of := m.meta.node
	if m.meta.signature == "" {
		of = engine.NodeID{}
	}
	number, answer, end := n.questions.open(of)
	defer end()
	text := m.name + "\n" + n.Addr().String()
	if n.sendFrameTo(m.addr.String(), m.name, m.meta.features&FeatureSigned != 0,
		frame{kind: frameProbe, number: number, text: []byte(text)}) != nil {
		return false
	}
	select {
	case <-answer:
		return true
	case <-ctx.Done():
		return false
	}
}

// answerProbe answers a probe if it asks for this process.
func (n *Node) answerProbe(f *frame) {
	name, sender, _ := strings.Cut(string(f.text), "\n")
	addr, err := netip.ParseAddrPort(sender)
	if err != nil {
		n.counters.badMember.Add(1)
		return
	}
	own := n.self.Load()
	if id, epoch, err := engine.ParseMemberName(f.from); err == nil && id == own.meta.node && addr != n.Addr() {
		if ok, _ := n.rivalProbes.allow(time.Now()); !ok || own.signer != nil && !f.signedBy(id, own.member) {
			n.counters.forged.Add(1)
			return
		}
		m := own.meta
		m.epoch = epoch
		n.queueRival(memberEvent{name: f.from, meta: m, addr: addr, up: true, same: f.from == own.member, sent: true})
	}
	if name == own.member {
		_ = n.sendFrameTo(addr.String(), f.from, f.signature != nil,
			frame{kind: frameAnswer, number: f.number, text: []byte("alive")})
	}
}
