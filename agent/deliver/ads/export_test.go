package ads

// Kept returns the number of peers that have counters and the memory that their names use, in
// bytes.
func (s *Server) Kept() (peers int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.owners {
		bytes += o.kept.Load()
	}
	return len(s.owners), bytes
}

// Silent returns the number of streams that have not sent a request.
func (s *Server) Silent() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.owners {
		n += o.silent
	}
	return n
}
