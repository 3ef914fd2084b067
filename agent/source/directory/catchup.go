package directory

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

const (
	// catchUpTime bounds how long CatchUp waits: a file that is written all the time, or deleted for
	// good, holds nobody up.
	catchUpTime = 2 * time.Second
	// lookAgain is the time between two looks, and forceScan how long events may take before a scan is
	// asked for.
	lookAgain = 5 * time.Millisecond
	forceScan = 200 * time.Millisecond
)

// CatchUp returns when the store has what the files hold now, so that who has written one and asks
// is not told of before. It gives up after two seconds, and when ctx ends. Where nothing has
// changed it costs a look at each file, and no reading.
func (s *Source) CatchUp(ctx context.Context) {
	if !s.behind() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	tick, begun := time.NewTicker(lookAgain), time.Now()
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

// behind reports whether files differ from what was read of them, or are about to lose what they
// had.
func (s *Source) behind() bool {
	s.mu.Lock()
	settles, dirs, known := !s.wake.IsZero() || len(s.moving) > 0, make([]string, 0, len(s.dirs)),
		make(map[string]signature, len(s.files))
	for path := range s.dirs {
		dirs = append(dirs, path)
	}
	for path, f := range s.files {
		if !f.vanished {
			known[path] = f.sig
		}
	}
	s.mu.Unlock()
	if settles {
		return true
	}
	for _, dir := range dirs {
		names, err := listResources(dir, s.o.Files)
		if err != nil {
			continue // its status says so
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
				return true // it has gone
			}
		}
	}
	return false
}
