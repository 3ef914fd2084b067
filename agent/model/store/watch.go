package store

import "sync"

// Watch returns a channel that has a value in it after every change that was not received yet; many
// changes become one value. A watcher that takes its first Snapshot after Watch and one more after
// each value received misses nothing. stop ends the watch; it may be called more than once. The
// channel is never closed.
func (s *Store) Watch() (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	s.watchMu.Lock()
	defer s.watchMu.Unlock()
	s.watchers[ch] = struct{}{}
	return ch, sync.OnceFunc(func() {
		s.watchMu.Lock()
		defer s.watchMu.Unlock()
		delete(s.watchers, ch)
	})
}

func (s *Store) notify() {
	s.watchMu.Lock()
	defer s.watchMu.Unlock()
	for ch := range s.watchers {
		select {
		case ch <- struct{}{}:
		default: // the watcher has not taken the last one: it will see this change with it
		}
	}
}
