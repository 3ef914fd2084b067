package ads

// Kept returns the number of peers that something is counted for, and what their names cost
// together, in bytes.
func (s *Server) Kept() (peers int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.owners {
		bytes += o.kept.Load()
	}
	return len(s.owners), bytes
}

// Silent returns the number of streams without a request so far.
func (s *Server) Silent() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.owners {
		n += o.silent
	}
	return n
}
