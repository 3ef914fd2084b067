package store

import "sync"

// Watch returns a channel that receives a value after every change; several unreceived changes are
// merged into one value. A watcher misses nothing if it takes a Snapshot after Watch, and one after
// each received value. stop ends the watch and may be called more than once. The channel is never
// closed.
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
		default: // the watcher has not received the last value: it will see this change too
		}
	}
}
