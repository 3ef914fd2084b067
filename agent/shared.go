package agent

import "sync"

// sharedTags implements [resource.Sharer] for the tags of outbounds.
type sharedTags struct {
	mu    sync.Mutex
	known map[string]map[string]string
}

// maxSharedTags bounds the known tags. Beyond it, all are dropped.
const maxSharedTags = 16_384

// Drop drops all known tags. Tags in use stay valid.
func (s *sharedTags) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = nil
}

// Share returns the known tags of a key, or adds those of made.
func (s *sharedTags) Share(key []byte, created func() map[string]string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.known[string(key)]; known != nil {
		return known
	}
	if s.known == nil || len(s.known) >= maxSharedTags {
		s.known = map[string]map[string]string{}
	}
	out := created()
	s.known[string(key)] = out
	return out
}
