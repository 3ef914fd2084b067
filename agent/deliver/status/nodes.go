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
	// askEvery is the interval of questions to other nodes. askTime limits one question.
	askEvery = 300 * time.Millisecond
	askTime  = 2 * time.Second
	// asksAtOnce limits concurrent questions.
	asksAtOnce = 32
	// maxAnswered limits the number of proxies in the answer of one node.
	maxAnswered = 1 << 20
)

// nodeQuestion is a question between agents of a pool: the state of a resource version on the
// proxies of the other node.
type nodeQuestion struct {
	api.Wait
	Digest string `json:"digest,omitempty"` // content of the resource; "" for a deletion
}

// everyNode returns a ticker for repeated questions to other nodes.
func everyNode(scope string) (<-chan time.Time, func()) {
	if scope != api.ScopeMesh {
		return nil, func() {}
	}
	tick := time.NewTicker(askEvery)
	return tick.C, tick.Stop
}

// meshWait caches answers to one question. Nodes that have the version are not asked again.
type meshWait struct {
	question string
	done     map[string]*api.Applied // by node ID
}

// addNodes adds the state on all other live nodes to that of this node.
func (t *Tracker) addNodes(ctx context.Context, key resource.Key, q *api.Wait, out *api.Applied, cache *meshWait) {
	out.Nodes = 1
	switch out.State {
	case api.StateApplied, api.StateGone, api.StateDraining, api.StateNoEffect:
	default:
		return // ask others only when it has arrived here
	}
	question := nodeQuestion{Wait: api.Wait{Type: key.Kind, Mesh: key.Mesh, Name: key.Name, For: q.For,
		Effective: q.Effective}}
	if rec, ok := t.Store.Snapshot().Get(key); ok && q.For != api.ForGone {
		question.Digest = fmt.Sprintf("%x", rec.Digest)
	}
	text, err := json.Marshal(question)
	if err != nil {
		return // cannot happen
	}
	if cache.question != string(text) {
		cache.question, cache.done = string(text), map[string]*api.Applied{}
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
		if answers[i].got = cache.done[m.ID]; answers[i].got != nil {
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
			addNode(out, m.Name, x.got, x.err, q.Effective)
			if x.err == nil && x.got.State != api.StatePending && x.got.State != api.StateDraining {
				cache.done[m.ID] = x.got
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
		return nil, fmt.Errorf("its response is invalid: %w", err)
	}
	for _, n := range []int{out.Proxies, out.Acknowledged, out.LateTotal, out.RejectedTotal, out.OldTotal} {
		if n < 0 || n > maxAnswered {
			return nil, fmt.Errorf("its response is invalid: %d proxies; 0 to %d are allowed", n, maxAnswered)
		}
	}
	return &out, nil
}

// addNode adds the state on another node.
func addNode(a *api.Applied, node string, got *api.Applied, err error, effective bool) {
	late := func(reason string) { a.LateNodes = append(a.LateNodes, api.LateNode{Name: node, Reason: reason}) }
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		late("it has not responded")
	case err != nil:
		late(err.Error())
	default:
		a.Proxies += got.Proxies
		a.Acknowledged += got.Acknowledged
		a.LateTotal += got.LateTotal
		a.RejectedTotal += got.RejectedTotal
		a.Late = append(a.Late, got.Late[:min(len(got.Late), MaxLate-min(len(a.Late), MaxLate))]...)
		a.Rejected = append(a.Rejected, got.Rejected[:min(len(got.Rejected), MaxLate-min(len(a.Rejected), MaxLate))]...)
		a.OldTotal += got.OldTotal
		a.Old = append(a.Old, got.Old[:min(len(got.Old), MaxLate-min(len(a.Old), MaxLate))]...)
		if got.OldUntil.After(a.OldUntil) {
			a.OldUntil = got.OldUntil
		}
		switch got.State {
		case api.StateRejected:
			a.State = api.StateRejected
		case api.StateStale:
			if a.State != api.StateRejected {
				a.State = api.StateStale
			}
		case api.StateDraining:
			switch a.State {
			case api.StateApplied, api.StateGone, api.StateNoEffect:
				a.State = api.StateDraining
			}
		case api.StatePending:
			reason := got.Reason
			if reason == "" {
				reason = "its proxies have not acknowledged it yet"
			}
			late(reason)
		default:
			if effective && !got.Effective {
				late("its agent has an older version, which does not report older connections")
			}
		}
	}
	if len(a.LateNodes) > 0 && a.State != api.StateRejected && a.State != api.StateStale {
		a.State = api.StatePending
	}
}

// Answer answers a question of another node's agent. It returns nil if the question is invalid.
func (t *Tracker) Answer(ctx context.Context, question []byte) []byte {
	var q nodeQuestion
	if json.Unmarshal(question, &q) != nil || q.For != "" && q.For != api.ForApplied && q.For != api.ForGone {
		return nil
	}
	d, ok := t.Registry.WithInternal().Lookup(q.Type) // a drain asks about an internal kind
	key := resource.Key{Kind: d.Kind, Mesh: q.Mesh, Name: q.Name}
	if d.Scope == resource.ScopeGlobal {
		key.Mesh = ""
	}
	if !ok || key.Name == "" || key.Mesh == "" && d.Scope == resource.ScopeMesh {
		return nil
	}
	out := api.Applied{Type: key.Kind, Mesh: key.Mesh, Name: key.Name, State: api.StatePending}
	rec, exists := t.Store.Snapshot().Get(key)
	switch {
	case q.Digest == "" && q.For != api.ForGone:
		return nil
	case q.For != api.ForGone && !exists:
		out.Reason = "it has not arrived there yet"
	case q.For != api.ForGone && fmt.Sprintf("%x", rec.Digest) != q.Digest:
		out.Reason = "another version is in force there, from " + rec.Source.String()
	default:
		if out, exists = t.current(ctx, key, &q.Wait); !exists {
			return nil
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil
	}
	return b
}
