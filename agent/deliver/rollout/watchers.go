package rollout

import (
	"sync"
	"sync/atomic"
)

// watchers are the channels to notify when the state of nodes changes. The zero value is ready for
// use.
type watchers struct {
	changes atomic.Uint64 // number of changes, incremented while the mu of the proxy is held or later

	mu  sync.Mutex // locked after all other locks
	chs map[chan struct{}]struct{}
}

// Watch returns a channel that receives a value after a change of [Proxies.Progress]. Changes are
// merged until the value is received. A caller that reads the progress after Watch, and again after
// each value, misses no change. stop ends the watch and may be called more than once. The channel
// is never closed.
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

// notify notifies all watchers. It never blocks.
func (w *watchers) notify() {
	w.changes.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.chs {
		select {
		case ch <- struct{}{}:
		default: // the pending value covers this change
		}
	}
}
