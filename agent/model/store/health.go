package store

import (
	"time"
)

// Health is how the store stands with its disk.
type Health struct {
	// Persistent is true while writes reach the disk; always false for a store in memory.
	Persistent bool
	// Err says why they do not; nil while they do and for a store in memory.
	Err error
	// Pending is the number of resources with changes that are not on disk, so that a restart would
	// lose them.
	Pending int
	// PendingSince is when the oldest of these came, or later; zero when there is none. With Err nil
	// they are on their way to the disk, and where that takes long, it stalls.
	PendingSince time.Time
	// SetAside is the new name of a damaged state file that this run found; "" when it found none.
	SetAside string
	// Salvaged is true when what could be read of that file is in the new one.
	Salvaged bool
	// Quarantined lists the values that this run could not load, at most quarantineLimit of them.
	Quarantined []Quarantined
	// LastPersist is the time of the last write to disk in this run, or of the load; zero when there
	// was none.
	LastPersist time.Time
}

// Quarantined is a value on disk that is damaged or cannot be decoded by this version.
type Quarantined struct {
	Bucket string // "records", "history" or "vips"
	Key    string // of the resource, with "@revision" in history; quoted bytes where they make no sense
	Reason string
	// Restored is true when the resource was restored from its history.
	Restored bool
}

// Health returns the present state. It never waits for the disk.
func (s *Store) Health() Health { return *s.health.Load() }

// Flush tries to write what is pending. It returns nil at once when there is nothing, and for a
// store in memory.
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

// report publishes the health. s.mu is held.
func (s *Store) report() {
	h := &Health{Err: s.state.err, SetAside: s.state.setAside, Salvaged: s.state.salvaged,
		Quarantined: s.state.quarantined, LastPersist: s.state.lastPersist}
	if s.opt.Path != "" {
		h.Persistent = s.disk != nil && s.state.err == nil
		for _, p := range s.backlog {
			if len(p.entries) > 0 { // else it is only to be put in order: revisions to remove, a record to restore
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
