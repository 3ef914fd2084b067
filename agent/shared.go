package agent

import "sync"

// sharedTags are the tags of outbounds that are in use, or were, as [resource.Sharer].
type sharedTags struct {
	mu    sync.Mutex
	known map[string]map[string]string
}

// maxSharedTags bounds them: beyond it all are forgotten, and new ones shared.
const maxSharedTags = 16_384

// Drop forgets all; tags that are in use stay what they are.
func (s *sharedTags) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = nil
}

// Share returns the tags of a key, the known ones or those that are made now.
func (s *sharedTags) Share(key []byte, made func() map[string]string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.known[string(key)]; known != nil {
		return known
	}
	if s.known == nil || len(s.known) >= maxSharedTags {
		s.known = map[string]map[string]string{}
	}
	out := made()
	s.known[string(key)] = out
	return out
}
