// Package zones asks upstreams whether they have the suffixes of generated names, and remembers
// the answers.
package zones

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/agent/compute/names"
)

// Times between two questions about one suffix. Without an answer, the time doubles from FirstRetry
// to Interval.
const (
	Interval   = 5 * time.Minute
	FirstRetry = 5 * time.Second
)

// maxAtOnce is the maximum number of questions in flight.
const maxAtOnce = 8

// Asker asks about suffixes. Its methods are safe for concurrent use, except Run.
type Asker struct {
	ask     func(ctx context.Context, suffix string) names.Evidence
	changed func()
	wake    chan struct{} // one slot

	mu       sync.Mutex
	suffixes map[string]*asked
	evidence map[string]names.Evidence // immutable
}

// asked is a suffix.
type asked struct {
	evidence names.Evidence
	retry    time.Duration // until the next question, if there is no answer
	next     time.Time
}

// New returns an asker. ask returns the answer of upstreams; it may take some seconds. changed is
// called after an answer that differs from the previous one, and must not block.
func New(ask func(ctx context.Context, suffix string) names.Evidence, changed func()) *Asker {
	return &Asker{ask: ask, changed: changed, wake: make(chan struct{}, 1), suffixes: map[string]*asked{},
		evidence: map[string]names.Evidence{}}
}

// Evidence returns the answers so far. It is never nil. Callers must not modify it.
func (a *Asker) Evidence() map[string]names.Evidence {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.evidence
}

// Set replaces the suffixes. New ones are asked about immediately, and the answers about others are
// forgotten.
func (a *Asker) Set(suffixes []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gone := false
	for name := range a.suffixes {
		if !slices.Contains(suffixes, name) {
			delete(a.suffixes, name)
			gone = true
		}
	}
	for _, name := range suffixes {
		if a.suffixes[name] == nil {
			a.suffixes[name] = &asked{}
			a.wakeUp()
		}
	}
	if gone {
		a.publish()
	}
}

// Repeat asks about all suffixes again. The previous answers are used until then.
func (a *Asker) Repeat() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.suffixes {
		s.retry, s.next = 0, time.Time{}
	}
	a.wakeUp()
}

// wakeUp makes Run look for due questions.
func (a *Asker) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// publish replaces the evidence. The caller holds the lock.
func (a *Asker) publish() {
	next := make(map[string]names.Evidence, len(a.suffixes))
	for name, s := range a.suffixes {
		if s.evidence != names.NotAsked {
			next[name] = s.evidence
		}
	}
	a.evidence = next
}

// Run asks until ctx ends. It returns when its goroutines have ended.
func (a *Asker) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-timer.C:
		}
		timer.Reset(a.askDue(ctx))
	}
}

// askDue asks all due questions, and returns the time until the next one.
func (a *Asker) askDue(ctx context.Context) time.Duration {
	var g errgroup.Group
	g.SetLimit(maxAtOnce)
	for _, name := range a.due(time.Now()) {
		g.Go(func() error { a.answer(ctx, name, a.ask(ctx, name)); return nil })
	}
	_ = g.Wait() // the functions return nil
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := Interval
	for _, s := range a.suffixes {
		wait = min(wait, time.Until(s.next))
	}
	return max(wait, 0)
}

// due returns the suffixes that are to be asked about, sorted.
func (a *Asker) due(now time.Time) (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.suffixes)) {
		if !a.suffixes[name].next.After(now) {
			out = append(out, name)
		}
	}
	return out
}

// answer records an answer. An earlier answer is retained while there is none.
func (a *Asker) answer(ctx context.Context, name string, e names.Evidence) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.suffixes[name]
	if s == nil || ctx.Err() != nil {
		return
	}
	before := s.evidence
	if e == names.NoAnswer {
		s.retry = min(max(2*s.retry, FirstRetry), Interval)
		s.next = time.Now().Add(s.retry)
		if before != names.NotAsked {
			return
		}
	} else {
		s.retry, s.next = 0, time.Now().Add(Interval)
	}
	if s.evidence = e; e != before {
		a.publish()
		a.changed()
	}
}
