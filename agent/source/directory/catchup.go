package directory

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

const (
	// catchUpTime limits how long CatchUp waits for a file that is written constantly or was deleted.
	catchUpTime = 2 * time.Second
	// pollEach is the interval of checks. forceScan is the time after which CatchUp requests a scan.
	pollEach  = 5 * time.Millisecond
	forceScan = 200 * time.Millisecond
)

// CatchUp returns when the store has the current content of the files, so that a client that wrote
// a file reads its result. It also returns after catchUpTime and when ctx ends. Without changes, it
// costs a stat of each file.
func (s *Source) CatchUp(ctx context.Context) {
	if !s.behind() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	tick, begun := time.NewTicker(pollEach), time.Now()
	defer tick.Stop()
	for s.behind() {
		if time.Since(begun) > forceScan {
			s.Rescan()
			begun = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// behind reports whether files have changed since they were read, or are retained temporarily.
func (s *Source) behind() bool {
	s.mu.Lock()
	pending, dirs, known := !s.wake.IsZero() || len(s.unstable) > 0, make(map[string]bool, len(s.dirs)),
		make(map[string]signature, len(s.files))
	for path, d := range s.dirs {
		dirs[path] = d.fault != nil
	}
	for path, f := range s.files {
		if !f.vanished {
			known[path] = f.sig
		}
	}
	s.mu.Unlock()
	if pending {
		return true
	}
	for dir, faulty := range dirs {
		names, _, err := listResources(dir, s.o.Files)
		if err != nil || faulty && len(names) == 0 {
			continue // reported in the status
		}
		for _, path := range names {
			sig, is := known[path]
			delete(known, path)
			if !is {
				return true
			}
			if st, err := os.Stat(path); err == nil && sig != (signature{}) && signatureOf(st) != sig {
				return true
			}
		}
		for path := range known {
			if filepath.Dir(path) == dir {
				return true // deleted
			}
		}
	}
	return false
}
