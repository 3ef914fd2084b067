package spool

import (
	"context"
	"time"
)

// storePatience is how long Store waits for a disk that does not answer.
const storePatience = 5 * time.Second

// Store is like [Backlog.Put], but returns when the collector or the spool has the lines, so that
// they survive the end of this process. It does not wait without a spool, and while the spool is
// full or cannot be written.
func (b *Backlog) Store(ctx context.Context, payload []byte, lines uint64) (taken bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if taken, err = b.put(ctx, payload, lines); !taken || b.spool == nil {
		return taken, err
	}
	last := b.next - 1
	timer := time.NewTimer(storePatience)
	defer timer.Stop()
	for wait := true; wait && len(b.mem) > 0 && b.mem[0].First <= last && !b.full && !b.stalled && b.diskErr == nil; {
		if b.left == nil {
			b.left = make(chan struct{})
		}
		left := b.left
		b.mu.Unlock()
		select {
		case <-left:
		case <-timer.C:
			wait = false
		case <-ctx.Done():
			wait = false
		}
		b.mu.Lock()
	}
	return true, nil
}

// signalLeft wakes callers of Store.
func (b *Backlog) signalLeft() {
	if b.left != nil {
		close(b.left)
		b.left = nil
	}
}

// Hurry makes lines in memory, and later ones, go to the spool at once.
func (b *Backlog) Hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hurry = true
	if b.spool != nil {
		notify(b.work)
	}
}
