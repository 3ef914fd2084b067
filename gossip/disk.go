package gossip

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Figures of writing behind.
const (
	writeDelay = 100 * time.Millisecond
	writeRetry = time.Second
)

// disk writes to the storage: what must be there at once, together with what waits; the rest a
// little later, many changes at a time.
type disk struct {
	storage Storage
	log     *slog.Logger
	dirty   chan struct{} // one slot

	writing sync.Mutex // one write at a time; taken before mu

	mu      sync.Mutex
	waiting []Op           // mu; the newest of each key
	index   map[string]int // mu; bucket and key → place in waiting
	failed  error          // mu; of the last write
}

func newDisk(s Storage, log *slog.Logger) *disk {
	return &disk{storage: s, log: log, dirty: make(chan struct{}, 1), index: map[string]int{}}
}

// add puts operations behind those that wait; the last one of a key counts.
func (d *disk) add(ops []Op) {
	for _, op := range ops {
		k := op.Bucket + "\x00" + op.Key
		if i, ok := d.index[k]; ok {
			d.waiting[i] = op
			continue
		}
		d.index[k] = len(d.waiting)
		d.waiting = append(d.waiting, op)
	}
}

// later leaves operations to run.
func (d *disk) later(ops []Op) {
	if len(ops) == 0 {
		return
	}
	d.mu.Lock()
	d.add(ops)
	d.mu.Unlock()
	select {
	case d.dirty <- struct{}{}:
	default:
	}
}

// durable writes all that waits and then ops, in one transaction. When that fails, ops are not
// kept.
func (d *disk) durable(ops []Op) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	waiting := d.waiting
	d.waiting, d.index = nil, map[string]int{}
	d.mu.Unlock()
	if len(waiting)+len(ops) == 0 {
		return nil
	}
	err := d.storage.Write(append(waiting[:len(waiting):len(waiting)], ops...))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
	if err != nil {
		newer := d.waiting
		d.waiting, d.index = nil, map[string]int{}
		d.add(waiting)
		d.add(newer)
	}
	return err
}

// run writes what waits until the context ends.
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
			d.log.Warn("the state of gossip cannot be saved; it goes on in memory", "error", err)
			delay = writeRetry
		}
	}
}

// state returns how many operations wait, and why the last write failed.
func (d *disk) state() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting), d.failed
}
