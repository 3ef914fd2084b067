package events

import (
	"context"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Rates of the computation of problems. It takes at most 1/share of the time.
const (
	quiet     = 200 * time.Millisecond // between a change and the computation
	share     = 200
	minEvery  = 2 * time.Second
	maxEvery  = 30 * time.Second
	restEvery = 15 * time.Second // without a change: some problems come with time
	// firstTime bounds the wait of a reader for the first list.
	firstTime = 2 * time.Second
)

// watcher computes the problems while there are readers of them.
type watcher struct {
	cancel context.CancelFunc
	ready  chan struct{} // closed when the first list is known
	done   chan struct{} // closed when the goroutine has ended
}

// watchProblems starts the computation of problems, unless it runs already. Call release when the
// reader has left: the last one waits until the computation has ended.
func (s *Server) watchProblems() (ready <-chan struct{}, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watching++; s.watching == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		w := &watcher{cancel: cancel, ready: make(chan struct{}), done: make(chan struct{})}
		s.watcher = w
		go func() {
			defer close(w.done)
			s.computeProblems(ctx, w)
		}()
	}
	return s.watcher.ready, func() {
		s.mu.Lock()
		w := s.watcher
		s.watching--
		last := s.watching == 0
		s.mu.Unlock()
		if last {
			w.cancel()
			<-w.done
		}
	}
}

// computeProblems publishes new and ended problems, until ctx ends.
func (s *Server) computeProblems(ctx context.Context, w *watcher) {
	var signals [2]<-chan struct{}
	for i, watch := range s.o.Watch {
		if watch != nil {
			changed, stop := watch()
			defer stop()
			signals[i] = changed
		}
	}
	var known []api.Problem
	for first := true; ; first = false {
		began := time.Now()
		list, pending := s.o.Problems(ctx)
		if ctx.Err() != nil {
			return
		}
		if first {
			close(w.ready)
		} else {
			s.o.Hub.publish(compare(known, list)...)
		}
		known = list
		if !awaitChange(ctx, signals, pending, min(max(share*time.Since(began), minEvery), maxEvery)) {
			return
		}
	}
}

// awaitChange waits until problems are due: after a change or if one is pending, but not before a
// pause is over. It returns false if ctx ends.
func awaitChange(ctx context.Context, signals [2]<-chan struct{}, pending bool, pause time.Duration) bool {
	over, rest := time.After(pause), time.After(restEvery)
	if !pending {
		select {
		case <-signals[0]:
		case <-signals[1]:
		case <-rest:
		case <-ctx.Done():
			return false
		}
	}
	for _, due := range []<-chan time.Time{time.After(quiet), over} {
		select {
		case <-due:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// compare returns events for the differences between two lists: those that ended first, and then
// those that are new.
func compare(before, now []api.Problem) (out []*event) {
	add := func(state string, list, without []api.Problem) {
		known := make(map[api.Problem]bool, len(without))
		for _, p := range without {
			known[p] = true
		}
		for _, p := range list {
			if !known[p] {
				out = append(out, &event{name: api.EventProblem, verb: access.VerbInspect, key: status.ProblemKey(&p),
					data: &api.ProblemEvent{State: state, Problem: p}})
			}
		}
	}
	add(api.ProblemEnded, before, now)
	add(api.ProblemNew, now, before)
	return out
}
