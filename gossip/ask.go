package gossip

import (
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
// its length, and the text.
const (
	frameQuestion = 0xe1 // engine messages never start with this byte: see protocolVersion
	frameAnswer   = 0xe2
	frameProbe    = 0xe3 // its text is a member name, a line feed, and the sender's address
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
	waiting map[uint64]chan []byte
	closed  bool          // no new answers start
	slots   chan struct{} // limits concurrent answers
}

// open returns the number of a new question, and a channel for its answer.
func (a *questions) open() (number uint64, answer chan []byte, end func()) {
	number, answer = rand.Uint64(), make(chan []byte, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[number] = answer
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
	return questions{waiting: map[uint64]chan []byte{}, slots: make(chan struct{}, answersAtOnce)}
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
	number, answer, end := n.questions.open()
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

func (n *Node) sendFrame(member string, kind byte, number uint64, text []byte) error {
	n.mu.Lock()
	addr := n.addrs[member]
	n.mu.Unlock()
	if addr == "" {
		return ErrNoMember
	}
	return n.sendFrameTo(addr, member, kind, number, text)
}

func (n *Node) sendFrameTo(addr, member string, kind byte, number uint64, text []byte) error {
	list, own := n.membership(), n.self.Load().member
	if list == nil {
		return ErrNoMember
	}
	b := binary.BigEndian.AppendUint64([]byte{kind}, number)
	b = append(append(b, byte(len(own))), own...)
	if err := list.SendToAddress(memberlist.Address{Addr: addr, Name: viaStream + member},
		append(b, text...)); err != nil {
		n.counters.unsent.Add(1)
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

// handleFrame handles a question or an answer, and reports whether b is one. It does not block.
func (n *Node) handleFrame(b []byte) bool {
	if len(b) == 0 || b[0] < frameQuestion || b[0] > frameProbe {
		return false
	}
	if len(b) < frameHead || len(b) < frameHead+int(b[frameHead-1]) {
		n.counters.badMember.Add(1)
		return true
	}
	number, size := binary.BigEndian.Uint64(b[1:]), int(b[frameHead-1])
	from, text := strings.Clone(string(b[frameHead:frameHead+size])), append([]byte{}, b[frameHead+size:]...)
	if len(text) > MaxQuestion {
		n.counters.badMember.Add(1)
		return true
	}
	if b[0] == frameProbe {
		n.answerProbe(from, number, string(text))
		return true
	}
	if b[0] == frameAnswer {
		n.questions.mu.Lock()
		answer := n.questions.waiting[number]
		n.questions.mu.Unlock()
		if answer != nil {
			select {
			case answer <- text:
			default: // an answer has already arrived
			}
		}
		return true
	}
	if n.opt.Answer == nil {
		return true
	}
	n.questions.mu.Lock()
	defer n.questions.mu.Unlock()
	if n.questions.closed {
		return true
	}
	select {
	case n.questions.slots <- struct{}{}:
	default:
		n.counters.inboxFull.Add(1) // the peer asks again
		return true
	}
	n.wg.Go(func() {
		defer func() { <-n.questions.slots }()
		ctx, cancel := context.WithTimeout(n.life, answerTime)
		defer cancel()
		if answer := n.opt.Answer(ctx, text); len(answer) > 0 && len(answer) <= MaxQuestion {
			_ = n.sendFrame(from, frameAnswer, number, answer)
		}
	})
	return true
}

// askAlive asks a member over a stream whether it is alive. The member need not know this node.
func (n *Node) askAlive(ctx context.Context, m memberEvent) bool {
	number, answer, end := n.questions.open()
	defer end()
	text := m.name + "\n" + n.Addr().String()
	if n.sendFrameTo(m.addr.String(), m.name, frameProbe, number, []byte(text)) != nil {
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
func (n *Node) answerProbe(from string, number uint64, text string) {
	name, sender, _ := strings.Cut(text, "\n")
	addr, err := netip.ParseAddrPort(sender)
	if err != nil {
		n.counters.badMember.Add(1)
		return
	}
	own := n.self.Load()
	if id, epoch, err := engine.ParseMemberName(from); err == nil && id == own.meta.node && addr != n.Addr() {
		m := own.meta
		m.epoch = epoch
		n.queueRival(memberEvent{name: from, meta: m, addr: addr, up: true, same: from == own.member, sent: true})
	}
	if name == own.member {
		_ = n.sendFrameTo(addr.String(), from, frameAnswer, number, []byte("alive"))
	}
}
