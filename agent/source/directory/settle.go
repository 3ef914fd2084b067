package directory

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Many writers truncate, unlink or rename away a file before they write it anew, and some take
// their time in between. So what has gone is believed only when it stays away: a file that
// vanished, or that holds no document any more, retains its last good content until it was seen so
// for the settle time. What a file says instead is believed at once.

// missing says in which way the file has no content now; "" when it has some, good or bad.
func (f *fileState) missing() string {
	switch {
	case f.vanished:
		return api.MissingVanished
	case f.empty:
		return api.MissingEmpty
	}
	return ""
}

// retained reports whether the resources of the file are in force although it has no content.
func (f *fileState) retained() bool { return f.missing() != "" && len(f.resources) > 0 }

// settleFiles decides what becomes of files without content: those that vanished since the last
// scan are added to next, those that had none for long enough lose what they had. What cannot be
// seen does not settle. s.mu is held.
func (s *Source) settleFiles(next map[string]*fileState) {
	now, bytes, count := time.Now(), map[string]int64{}, map[string]int{}
	s.wake = time.Time{}
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		if next[path] == nil {
			f := *s.files[path]
			f.vanished = f.vanished || !s.unseen(path)
			next[path] = &f
		}
	}
	others := map[string]bool{} // directories that have a file with content
	for path, f := range next {
		others[filepath.Dir(path)] = others[filepath.Dir(path)] || f.missing() == ""
	}
	for _, path := range slices.Sorted(maps.Keys(next)) {
		f := next[path]
		if s.unseen(path) {
			f.since = time.Time{}
			continue
		}
		how, dir := f.missing(), filepath.Dir(path)
		if how == "" {
			if !f.since.IsZero() {
				s.o.Log.Info("resource file is back", "file", path)
			}
			f.since = time.Time{}
			continue
		}
		// Without a bound, files that appear and vanish all the time would pile up.
		bytes[dir], count[dir] = bytes[dir]+f.sig.size, count[dir]+1
		if len(f.resources) > 0 && s.begun && bytes[dir] <= s.o.TotalBytes && count[dir] <= s.o.Files &&
			s.retain(f, how, others[dir], now) {
			continue
		}
		if f.vanished {
			s.o.Log.Info("resource file is gone", "file", path, "resources", len(f.resources))
			delete(next, path)
		} else if len(f.resources) > 0 {
			s.o.Log.Info("resource file is empty", "file", path, "resources", len(f.resources))
			f.resources, f.refused, f.since, f.loaded = nil, nil, time.Time{}, s.o.Now()
		}
	}
}

// retain reports whether a file without content has still time left, and sees to it that there is a
// scan when that has passed. A file that is deleted beside others has less of it than one that is
// empty, or than all of a directory: a tool may be filling that anew.
func (s *Source) retain(f *fileState, how string, others bool, now time.Time) bool {
	grace := s.o.Settle
	if f.vanished && others {
		grace = s.o.Gone
	}
	if f.since.IsZero() {
		f.since, f.grace = now, grace
		s.o.Log.Info("resource file has no content; what it had is retained for a while", "file", f.path, "state", how,
			"resources", len(f.resources), "for", grace)
	}
	f.grace = max(f.grace, grace) // one absence, in turns of both
	until := f.since.Add(f.grace)
	if !now.Before(until) {
		return false
	}
	if s.wake.IsZero() || until.Before(s.wake) {
		s.wake = until
	}
	return true
}

// forgetMoved lets go of vanished files of which nothing is in force: other files have what they
// had. s.mu is held.
func (s *Source) forgetMoved() {
	for path, f := range s.files {
		if f.vanished && f.active == 0 {
			delete(s.files, path)
		}
	}
}

// newcomers returns the keys that a file with content names without having waited for another file
// to give them up. It has them before a file whose content is retained. One that has waited goes on
// waiting, or a pause of the first file's writer would show for a moment what the second says. s.mu
// is held.
func (s *Source) newcomers() map[resource.Key]bool {
	if !slices.ContainsFunc(slices.Collect(maps.Values(s.files)), (*fileState).retained) {
		return nil
	}
	out := map[resource.Key]bool{}
	for _, f := range s.files {
		if f.missing() != "" {
			continue
		}
		for _, r := range f.resources {
			if _, waits := f.conflicts[r.Key.String()]; !waits {
				out[r.Key] = true
			}
		}
	}
	return out
}
