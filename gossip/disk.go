package gossip

import (
	"context"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"log/slog"
	"sync"
	"time"
)

// Delays of background writes.
const (
	writeDelay = 100 * time.Millisecond
	writeRetry = time.Second
)

// disk writes to the storage. Durable operations are written at once, with all pending ones. Others
// are batched and written after writeDelay.
type disk struct {
	storage Storage
	queue   Queue // storage, if it has pending operations itself; else nil
	log     *slog.Logger
	dirty   chan struct{} // one slot

	writing sync.Mutex // one write at a time; taken before mu

	mu      sync.Mutex
	pending []engine.Op    // mu; the newest of each key
	index   map[string]int // mu; bucket and key → index in pending
	failed  error          // mu; error of the last write
}

func newDisk(s Storage, log *slog.Logger) *disk {
	queue, _ := s.(Queue)
	return &disk{storage: s, queue: queue, log: log, dirty: make(chan struct{}, 1), index: map[string]int{}}
}

// add appends operations to the pending ones. The last operation of a key wins.
func (d *disk) add(ops []engine.Op) {
	for _, op := range ops {
		k := op.Bucket + "\x00" + op.Key
		if i, ok := d.index[k]; ok {
			d.pending[i] = op
			continue
		}
		d.index[k] = len(d.pending)
		d.pending = append(d.pending, op)
	}
}

// later queues operations for a background write.
func (d *disk) later(ops []engine.Op) {
	if len(ops) == 0 {
		return
	}
	if d.queue != nil {
		d.queue.Later(ops)
	} else {
		d.mu.Lock()
		d.add(ops)
		d.mu.Unlock()
	}
	select {
	case d.dirty <- struct{}{}:
	default:
	}
}

// durable writes all pending operations and ops in one transaction. On failure it discards ops.
func (d *disk) durable(ops []engine.Op) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	pending := d.pending
	d.pending, d.index = nil, map[string]int{}
	d.mu.Unlock()
	if len(pending)+len(ops) == 0 && (d.queue == nil || d.queue.Pending() == 0) {
		return nil
	}
	err := d.storage.Write(append(pending[:len(pending):len(pending)], ops...))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
	if err != nil {
		newer := d.pending
		d.pending, d.index = nil, map[string]int{}
		d.add(pending)
		d.add(newer)
	}
	return err
}

// run writes pending operations until ctx ends.
func (d *disk) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.dirty:
		}
		delay := writeDelay
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
			}
			err := d.durable(nil)
			if err == nil {
				break
			}
			d.log.Warn("cannot save gossip state; the agent continues in memory", "error", err)
			delay = writeRetry
		}
	}
}

// state returns the number of pending operations and the error of the last write.
func (d *disk) state() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue != nil {
		return d.queue.Pending(), d.failed
	}
	return len(d.pending), d.failed
}
