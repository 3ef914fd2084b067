package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const (
	// askEvery is how often other nodes are asked again, and askTime how long one may take.
	askEvery = 300 * time.Millisecond
	askTime  = 2 * time.Second
	// asksAtOnce bounds the nodes that are asked at a time.
	asksAtOnce = 32
	// maxAnswered bounds the proxies of one node in its answer.
	maxAnswered = 1 << 20
)

// nodeQuestion is what agents of a pool ask each other: how it stands with a version of a resource
// on the proxies of the other one.
type nodeQuestion struct {
	api.Wait
	Digest string `json:"digest,omitempty"` // of the content; "" where it is to be gone
}

// everyNode tells when it is time to ask other nodes again.
func everyNode(scope string) (<-chan time.Time, func()) {
	if scope != api.ScopeMesh {
		return nil, func() {}
	}
	tick := time.NewTicker(askEvery)
	return tick.C, tick.Stop
}

// meshWait is what one question knows of other nodes: whoever has the version by now is not asked
// again.
type meshWait struct {
	question string
	done     map[string]*api.Applied // by id
}

// everywhere adds to how it stands on this node how it stands on the others that are alive.
func (t *Tracker) everywhere(ctx context.Context, key resource.Key, q *api.Wait, out *api.Applied, known *meshWait) {
	out.Nodes = 1
	if out.State != api.StateApplied && out.State != api.StateGone {
		return // it is to be in force here first
	}
	question := nodeQuestion{Wait: api.Wait{Type: key.Kind, Mesh: key.Mesh, Name: key.Name, For: q.For}}
	if rec, ok := t.Store.Snapshot().Get(key); ok && q.For != api.ForGone {
		question.Digest = fmt.Sprintf("%x", rec.Digest)
	}
	text, err := json.Marshal(question)
	if err != nil {
		return // it holds names
	}
	if known.question != string(text) {
		known.question, known.done = string(text), map[string]*api.Applied{}
	}
	type answer struct {
		got *api.Applied
		err error
	}
	members := t.Nodes.Members()
	answers := make([]answer, len(members))
	var wg sync.WaitGroup
	slots := make(chan struct{}, asksAtOnce)
	for i, m := range members {
		if m.Self || m.State != api.MemberAlive {
			continue
		}
		if answers[i].got = known.done[m.ID]; answers[i].got != nil {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			answers[i].got, answers[i].err = t.askNode(ctx, m.ID, text)
		})
	}
	wg.Wait()
	for i, m := range members {
		switch x := answers[i]; {
		case m.Self:
		case m.State == api.MemberAlive:
			out.Nodes++
			addNode(out, m.Name, x.got, x.err)
			if x.err == nil && x.got.State != api.StatePending {
				known.done[m.ID] = x.got
			}
		case m.State == api.MemberDead:
			out.Unasked = append(out.Unasked, m.Name)
		}
	}
}

// askNode asks one node.
func (t *Tracker) askNode(ctx context.Context, id string, text []byte) (*api.Applied, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	b, err := t.Nodes.Ask(ctx, id, text)
	if err != nil {
		return nil, err
	}
	var out api.Applied
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("its answer is not understood: %w", err)
	}
	for _, n := range []int{out.Proxies, out.Acknowledged, out.LateTotal, out.RejectedTotal} {
		if n < 0 || n > maxAnswered {
			return nil, fmt.Errorf("its answer is not understood: %d proxies; 0 to %d are allowed", n, maxAnswered)
		}
	}
	return &out, nil
}

// addNode adds the progress of another node.
func addNode(a *api.Applied, node string, got *api.Applied, err error) {
	late := func(reason string) { a.LateNodes = append(a.LateNodes, api.LateNode{Name: node, Reason: reason}) }
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		late("it has not answered")
	case err != nil:
		late(err.Error())
	default:
		a.Proxies += got.Proxies
		a.Acknowledged += got.Acknowledged
		a.LateTotal += got.LateTotal
		a.RejectedTotal += got.RejectedTotal
		a.Late = append(a.Late, got.Late[:min(len(got.Late), MaxLate-min(len(a.Late), MaxLate))]...)
		a.Rejected = append(a.Rejected, got.Rejected[:min(len(got.Rejected), MaxLate-min(len(a.Rejected), MaxLate))]...)
		switch got.State {
		case api.StateRejected:
			a.State = api.StateRejected
		case api.StatePending:
			reason := got.Reason
			if reason == "" {
				reason = "its proxies have not answered yet"
			}
			late(reason)
		}
	}
	if len(a.LateNodes) > 0 && a.State != api.StateRejected {
		a.State = api.StatePending
	}
}

// Answer answers what the agent of another node asks. What is not understood has no answer.
func (t *Tracker) Answer(question []byte) []byte {
	var q nodeQuestion
	if json.Unmarshal(question, &q) != nil || q.For != "" && q.For != api.ForApplied && q.For != api.ForGone {
		return nil
	}
	d, ok := t.Registry.Lookup(q.Type)
	key := resource.Key{Kind: d.Kind, Mesh: q.Mesh, Name: q.Name}
	if d.Scope == resource.ScopeGlobal {
		key.Mesh = ""
	}
	if !ok || key.Name == "" || key.Mesh == "" && d.Scope == resource.ScopeMesh {
		return nil
	}
	out := api.Applied{Type: key.Kind, Mesh: key.Mesh, Name: key.Name, State: api.StatePending}
	rec, there := t.Store.Snapshot().Get(key)
	switch {
	case q.Digest == "" && q.For != api.ForGone:
		return nil
	case q.For != api.ForGone && !there:
		out.Reason = "it has not come there yet"
	case q.For != api.ForGone && fmt.Sprintf("%x", rec.Digest) != q.Digest:
		out.Reason = "another version is in force there, from " + rec.Source.String()
	default:
		if out, there = t.standing(key, &q.Wait); !there {
			return nil
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil
	}
	return b
}
