package directory

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Many programs truncate, unlink, or rename a file before they write it again, and some pause in
// between. So a file that vanished or has no documents retains its last good content for a grace
// time. Other new content takes effect at once.

// missing returns how the file has no content, or "" if it has some, valid or not.
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

// retainFiles handles files without content: it adds vanished files to next, and removes the
// content of files whose grace time has ended. It does not change files in unreadable directories.
// It modifies only states of files that are missing or were. s.mu is held.
func (s *Source) retainFiles(next map[string]*fileState) {
	s.wake = time.Time{}
	for path, f := range s.files {
		if next[path] == nil {
			gone := *f
			gone.vanished = gone.vanished || !s.unseen(path)
			next[path] = &gone
		}
	}
	var absent []string         // and files that were
	others := map[string]bool{} // directories that contain a file with content
	for path, f := range next {
		if f.missing() != "" || !f.since.IsZero() {
			absent = append(absent, path)
		}
		others[f.dir] = others[f.dir] || f.missing() == ""
	}
	slices.Sort(absent)
	now, bytes, count := time.Now(), map[string]int64{}, map[string]int{}
	for _, path := range absent {
		f := next[path]
		if s.unseen(path) {
			f.since = time.Time{}
			continue
		}
		how, dir := f.missing(), f.dir
		if how == "" {
			s.o.Log.Info("resource file has content again", "file", path)
			f.since = time.Time{}
			continue
		}
		// Without a limit, files that appear and vanish repeatedly would accumulate.
		bytes[dir], count[dir] = bytes[dir]+f.sig.size, count[dir]+1
		if len(f.resources) > 0 && s.begun && bytes[dir] <= s.o.TotalBytes && count[dir] <= s.o.Files &&
			s.retain(f, how, others[dir] || s.role(path) == access.TemplateKubernetes, now) {
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

// retain reports whether the grace time of a file without content has not ended, and schedules a
// scan for its end. The grace time is shorter for a deleted file if other files remain, or if its
// writer follows Kubernetes: the last pod of a node leaves as fast as others. Other tools may be
// recreating an empty file or a whole directory.
func (s *Source) retain(f *fileState, how string, others bool, now time.Time) bool {
	grace := s.o.Retain
	if f.vanished && others {
		grace = s.o.RetainDeleted
	}
	if f.since.IsZero() {
		f.since, f.grace = now, grace
		s.o.Log.Info("resource file has no content; its resources are retained temporarily", "file", f.path, "state", how,
			"resources", len(f.resources), "limit", grace)
	}
	f.grace = max(f.grace, grace) // one absence, even if its kind changes
	until := f.since.Add(f.grace)
	// After an event about the deletion, a next step of the writer would cause one too.
	if d := s.dirs[filepath.Dir(f.path)]; d != nil && f.vanished && others && f.grace <= s.o.RetainDeleted &&
		d.event.After(f.since.Add(-s.o.Ceiling)) {
		until = earlier(until, later(f.since, d.event).Add(s.o.Settle))
	}
	f.until = until
	if !now.Before(until) {
		return false
	}
	if s.wake.IsZero() || until.Before(s.wake) {
		s.wake = until
	}
	return true
}

// saw records an event in directories.
func (s *Source) saw(dirs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range dirs {
		s.dirs[dir].event = time.Now()
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// forgetMoved drops vanished files without active resources: other files have their content. s.mu
// is held.
func (s *Source) forgetMoved() {
	for path, f := range s.files {
		if f.vanished && f.active == 0 {
			delete(s.files, path)
		}
	}
}

// newcomers returns the keys of retained content that are also in files with content, which did not
// wait for another file to release them. They take precedence over retained content. A key that has
// waited continues to wait; otherwise a pause of the first file's writer would briefly activate the
// second file. s.mu is held.
func (s *Source) newcomers() map[resource.Key]bool {
	released := map[resource.Key]bool{} // by files without content
	for _, f := range s.files {
		if f.retained() {
			for _, r := range f.resources {
				released[r.Key] = true
			}
		}
	}
	if len(released) == 0 {
		return nil
	}
	out := map[resource.Key]bool{}
	for _, f := range s.files {
		if f.missing() != "" {
			continue
		}
		for _, r := range f.resources {
			if !released[r.Key] {
				continue
			}
			if _, waited := f.conflicts[r.Key.String()]; !waited {
				out[r.Key] = true
			}
		}
	}
	return out
}
