package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// A question is asked of one member and answered by it, beside the records: for what only that node
// knows, and only when somebody wants to know it. Frames are a byte, a number that the answer
// repeats, the name of the sender with its length, and the text.
const (
	frameQuestion = 0xe1 // no message of the engine begins so: see its protocol version
	frameAnswer   = 0xe2
	frameHead     = 1 + 8 + 1

	// MaxQuestion bounds a question and an answer in bytes.
	MaxQuestion = 1 << 20

	answersAtOnce = 4
	answerTime    = 10 * time.Second
)

// Errors of questions.
var (
	// ErrNoMember says that the node is not there.
	ErrNoMember = errors.New("the node is no living member")
	// ErrTooLong says that a question passes its bound.
	ErrTooLong = errors.New("the question is too long")
)

// asks is what is asked and answered.
type asks struct {
	mu      sync.Mutex
	waiting map[uint64]chan []byte
	closed  bool          // nothing is answered any more
	slots   chan struct{} // of answers under way
}

// close ends the taking of questions.
func (a *asks) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

func newAsks() asks {
	return asks{waiting: map[uint64]chan []byte{}, slots: make(chan struct{}, answersAtOnce)}
}

// Ask puts a question to a node and returns what its [Options.Answer] says. It fails when ctx ends
// first: the node may be dead, too busy, or of a version that answers no questions.
func (n *Node) Ask(ctx context.Context, id NodeID, question []byte) ([]byte, error) {
	if len(question) > MaxQuestion {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrTooLong, len(question), MaxQuestion)
	}
	n.mu.Lock()
	k := n.roster[id]
	n.mu.Unlock()
	if k.State != StateAlive {
		return nil, ErrNoMember
	}
	number, answer := rand.Uint64(), make(chan []byte, 1)
	n.asks.mu.Lock()
	n.asks.waiting[number] = answer
	n.asks.mu.Unlock()
	defer func() {
		n.asks.mu.Lock()
		delete(n.asks.waiting, number)
		n.asks.mu.Unlock()
	}()
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
	addr, list := n.addrs[member], n.list
	n.mu.Unlock()
	if addr == "" || list == nil {
		return ErrNoMember
	}
	b := binary.BigEndian.AppendUint64([]byte{kind}, number)
	b = append(append(b, byte(len(n.member))), n.member...)
	if err := list.SendToAddress(memberlist.Address{Addr: addr, Name: viaStream + member},
		append(b, text...)); err != nil {
		n.counters.unsent.Add(1)
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

// frame takes a question or an answer, and reports whether it is one. It does not wait.
func (n *Node) frame(b []byte) bool {
	if len(b) == 0 || b[0] != frameQuestion && b[0] != frameAnswer {
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
	if b[0] == frameAnswer {
		n.asks.mu.Lock()
		answer := n.asks.waiting[number]
		n.asks.mu.Unlock()
		if answer != nil {
			select {
			case answer <- text:
			default: // there was one already
			}
		}
		return true
	}
	if n.opt.Answer == nil {
		return true
	}
	n.asks.mu.Lock()
	defer n.asks.mu.Unlock()
	if n.asks.closed {
		return true
	}
	select {
	case n.asks.slots <- struct{}{}:
	default:
		n.counters.inboxFull.Add(1) // who asks asks again
		return true
	}
	n.wg.Go(func() {
		defer func() { <-n.asks.slots }()
		ctx, cancel := context.WithTimeout(n.life, answerTime)
		defer cancel()
		if answer := n.opt.Answer(ctx, text); len(answer) > 0 && len(answer) <= MaxQuestion {
			_ = n.sendFrame(from, frameAnswer, number, answer)
		}
	})
	return true
}
