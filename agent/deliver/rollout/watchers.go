package rollout

import (
	"sync"
	"sync/atomic"
)

// watchers are those who want to know that something about the nodes has changed. The zero value
// has none.
type watchers struct {
	changes atomic.Uint64 // of what is known of the nodes, counted while their mu is held or after

	mu  sync.Mutex // taken last of all
	chs map[chan struct{}]struct{}
}

// Watch returns a channel that has a value in it after every change of [Proxies.Progress] that was
// not received yet; many changes become one value. Who takes its first look after Watch and one
// more after each value received misses nothing. stop ends the watch; it may be called more than
// once. The channel is never closed.
func (p *Proxies) Watch() (changed <-chan struct{}, stop func()) {
	w := &p.watchers
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chs == nil {
		w.chs = map[chan struct{}]struct{}{}
	}
	w.chs[ch] = struct{}{}
	return ch, sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.chs, ch)
	})
}

// notify tells all watchers. It never blocks.
func (w *watchers) notify() {
	w.changes.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.chs {
		select {
		case ch <- struct{}{}:
		default: // the last one has not been received: this change is seen with it
		}
	}
}
