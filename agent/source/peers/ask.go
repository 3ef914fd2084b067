package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/gossip"
)

// question is a question to the pool source of another node. [Options.Answer] answers all others.
type question struct {
	Ask string `json:"ask"`
}

// Values of question.Ask.
const (
	askRoot      = "root"      // the answer is a rootAnswer
	askKeys      = "keys"      // the answer is a keysAnswer
	askConflicts = "conflicts" // the answer is a conflictsAnswer
)

type rootAnswer struct {
	Root string `json:"root"`
}

// keysAnswer has the fingerprints of the loaded keys. The first key encrypts.
type keysAnswer struct {
	Keys []string `json:"keys"`
}

type conflictsAnswer struct {
	Items []api.ConflictItem `json:"items"` // without the resources
	Total int                `json:"total"`
}

const (
	askTime      = 2 * time.Second  // limit of one question
	asksTime     = 15 * time.Second // limit of a question to many members
	asksAtOnce   = 32
	maxConflicts = 1000 // in one answer, which must be smaller than [gossip.MaxQuestion]
)

// answer answers a question of another node.
func (s *Source) answer(ctx context.Context, text []byte) []byte {
	var out any
	var q question
	_ = json.Unmarshal(text, &q) // an invalid question is left to the other function
	switch q.Ask {
	case askRoot:
		out = rootAnswer{s.root()}
	case askKeys:
		out = keysAnswer{s.keys()}
	case askConflicts:
		list := s.Conflicts()
		items := make([]api.ConflictItem, min(len(list), maxConflicts))
		for i := range items {
			items[i] = api.NewConflictItem(list[i])
		}
		out = conflictsAnswer{items, len(list)}
	default:
		if s.o.Answer == nil {
			return nil
		}
		return s.o.Answer(ctx, text)
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil // cannot happen
	}
	return b
}

// root returns the root of this node's entries in hexadecimal.
func (s *Source) root() string { return fmt.Sprintf("%016x", s.node.Stats().Root) }

// reply is the answer of one member.
type reply[T any] struct {
	member gossip.Member
	got    T
	err    error
}

// askAll asks live members at the same time. The result has their order.
func askAll[T any](ctx context.Context, s *Source, ask string, members []gossip.Member) []reply[T] {
	ctx, cancel := context.WithTimeout(ctx, asksTime)
	defer cancel()
	text, _ := json.Marshal(question{ask}) // never fails
	out := make([]reply[T], len(members))
	s.askEach(ctx, members, text, askTime, func(i int, body []byte, err error) {
		out[i].member = members[i]
		if err == nil {
			err = json.Unmarshal(body, &out[i].got)
		}
		out[i].err = err
	})
	return out
}

// askEach asks members a question, several at a time, and waits for each at most for the given
// time. It calls answer from several goroutines, once for each index, and returns afterwards.
func (s *Source) askEach(ctx context.Context, members []gossip.Member, question []byte, each time.Duration,
	answer func(i int, body []byte, err error)) {
	slots := make(chan struct{}, asksAtOnce)
	var wg sync.WaitGroup
	for i, m := range members {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, each)
			defer cancel()
			body, err := s.node.Ask(ctx, m.Node, question)
			answer(i, body, err)
		})
	}
	wg.Wait()
}

// AskOthers asks the other live nodes a question that their [Options.Answer] answers, and waits for
// each at most for the given time.
func (s *Source) AskOthers(ctx context.Context, question []byte, each time.Duration) []api.NodeAnswer {
	members := s.others()
	out := make([]api.NodeAnswer, len(members))
	s.askEach(ctx, members, question, each, func(i int, body []byte, err error) {
		out[i].Node = members[i].Name
		if out[i].Body = body; err != nil {
			out[i].Missing = noAnswer(err)
		}
	})
	return out
}

// others returns the live members except this node.
func (s *Source) others() (out []gossip.Member) {
	for _, m := range s.node.Members() {
		if !m.Self && m.State == gossip.StateAlive {
			out = append(out, m)
		}
	}
	return out
}

// noAnswer says why a member did not answer.
func noAnswer(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "it has not responded; it is busy, or its version does not answer this question"
	}
	return err.Error()
}

// ConflictsElsewhere asks the other live nodes for their conflicts.
func (s *Source) ConflictsElsewhere(ctx context.Context) (out []api.NodeConflicts) {
	for _, r := range askAll[conflictsAnswer](ctx, s, askConflicts, s.others()) {
		x := api.NodeConflicts{Node: r.member.Name, Items: r.got.Items}
		switch {
		case r.err != nil:
			x = api.NodeConflicts{Node: r.member.Name, Missing: noAnswer(r.err)}
		case r.got.Total > len(x.Items):
			x.Missing = fmt.Sprintf("it has %d conflicts and sent %d; run nearside conflicts there", r.got.Total, len(x.Items))
		}
		out = append(out, x)
	}
	return out
}
