package store

import (
	"time"
)

// Health describes the state of the store's disk.
type Health struct {
	// Persistent is true while writes reach the disk. It is always false for a store in memory.
	Persistent bool
	// Err is the reason why they do not; nil while they do, and for a store in memory.
	Err error
	// Pending is the number of resources with changes that are not on disk, which a restart would
	// lose.
	Pending int
	// PendingSince is a lower bound of the age of these changes; zero if there are none. If Err is
	// nil they are being written, and a long delay means that the disk stalls.
	PendingSince time.Time
	// SetAside is the new name of a damaged state file that this run found; may be "".
	SetAside string
	// Salvaged is true if the readable content of that file is in the new one.
	Salvaged bool
	// Quarantined lists up to quarantineLimit values that this run could not load.
	Quarantined []Quarantined
	// LastPersist is the time of the last write to disk in this run, or of the load; zero if there
	// was none.
	LastPersist time.Time
}

// Quarantined is a value on disk that is damaged, or that this version cannot decode.
type Quarantined struct {
	Bucket string // "records", "history" or "vips"
	Key    string // resource key, with "@revision" in history; quoted bytes if it cannot be parsed
	Reason string
	// Restored is true if the resource was restored from its history.
	Restored bool
}

// Health returns the current state. It never waits for the disk.
func (s *Store) Health() Health { return *s.health.Load() }

// Flush tries to write pending changes. It returns nil at once if there are none, and for a store
// in memory.
func (s *Store) Flush() error {
	s.commits.Lock()
	defer s.commits.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return s.flush()
}

// report publishes the health. The caller holds s.mu.
func (s *Store) report() {
	h := &Health{Err: s.state.err, SetAside: s.state.setAside, Salvaged: s.state.salvaged,
		Quarantined: s.state.quarantined, LastPersist: s.state.lastPersist}
	if s.opt.Path != "" {
		h.Persistent = s.disk != nil && s.state.err == nil
		for _, p := range s.backlog {
			if len(p.entries) > 0 { // else only old revisions or a record are rewritten
				h.Pending++
			}
		}
		switch {
		case h.Pending == 0:
			s.since = time.Time{}
		case s.since.IsZero():
			s.since = s.now()
		}
		h.PendingSince = s.since
	}
	s.health.Store(h)
}
