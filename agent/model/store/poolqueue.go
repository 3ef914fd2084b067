package store

import (
	"maps"
	"slices"
	"sync"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// stateQueue holds state of the pool that is not on disk. The next transaction writes all of it,
// whatever causes that transaction: a version on disk may replace one that only this state lists as
// a conflict.
type stateQueue struct {
	mu   sync.Mutex          // locked last
	ops  map[string]queuedOp // mu; the newest of each key
	last uint64              // mu
}

type queuedOp struct {
	engine.Op
	number uint64 // in order of arrival
}

func (q *stateQueue) add(ops []engine.Op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ops == nil {
		q.ops = map[string]queuedOp{}
	}
	for _, op := range ops {
		q.last++
		q.ops[stateKey(op)] = queuedOp{op, q.last}
	}
}

// all returns the operations sorted by key, and the number of the last one.
func (q *stateQueue) all() (out []engine.Op, last uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(q.ops)) {
		out = append(out, q.ops[k].Op)
	}
	return out, q.last
}

// drop removes the operations up to a number.
func (q *stateQueue) drop(last uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.ops, func(_ string, op queuedOp) bool { return op.number <= last })
}

func (q *stateQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ops)
}

// stateKey returns the key of an operation in the state bucket.
func stateKey(op engine.Op) string { return op.Bucket + "\x00" + op.Key }

// QueuePoolState adds state of the pool besides versions to the next transaction. It does not wait
// for locks of the store, so the pool may hold its own.
func (s *Store) QueuePoolState(ops []engine.Op) {
	if s.opt.Path != "" {
		s.pool.queue.add(ops)
	}
}

// PoolStateQueued returns the number of operations that wait for a transaction.
func (s *Store) PoolStateQueued() int { return s.pool.queue.len() }
