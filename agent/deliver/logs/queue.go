package logs

import (
	"maps"
	"slices"
	"sync"
)

// queue is a set of pending names.
type queue struct {
	wake chan struct{} // one slot

	mu    sync.Mutex
	names map[string]bool
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1), names: map[string]bool{}} }

// add adds a name. It does not block.
func (q *queue) add(name string) {
	q.mu.Lock()
	q.names[name] = true
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default: // already notified
	}
}

// take returns the names, sorted, and empties the queue.
func (q *queue) take() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := slices.Sorted(maps.Keys(q.names))
	clear(q.names)
	return out
}
