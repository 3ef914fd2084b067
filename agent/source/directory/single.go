package directory

import (
	"maps"
	"os"
	"slices"
)

// scanFiles reads single files, and those whose grace time may end. It returns false, without
// changes, if it cannot tell what has happened; the caller must then scan all directories.
func (s *Source) scanFiles(touched map[string]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reapply || !s.begun {
		return false
	}
	paths := maps.Clone(touched)
	for path, f := range s.files {
		if !f.since.IsZero() {
			paths[path] = true
		}
	}
	for path := range paths {
		if s.unseen(path) {
			return false
		}
	}
	budgets, counts := map[string]int64{}, map[string]int{}
	for path, f := range s.files {
		if !paths[path] && !f.vanished {
			counts[f.dir]++
			budgets[f.dir] -= f.sig.size
		}
	}
	clear(s.unstable)
	next := maps.Clone(s.files)
	read := slices.Sorted(maps.Keys(paths))
	for _, path := range read {
		prev := s.files[path]
		if prev == nil {
			prev = newFile(path)
		}
		var f *fileState
		if s.dirs[prev.dir] != nil { // else the directory was removed from the config
			f = s.read(prev, s.o.TotalBytes+budgets[prev.dir])
		}
		switch {
		case prev.link || f != nil && f.link:
			return false // what a link leads to may have changed too
		case f == nil && s.files[path] == nil: // created and deleted since the last scan
		case f == nil:
			if s.dirs[prev.dir] != nil && !isDir(prev.dir) {
				return false // not the file is gone, but the directory
			}
			gone := *prev
			gone.vanished = true
			next[path] = &gone
		default:
			if counts[f.dir]++; counts[f.dir] > s.o.Files {
				return false
			}
			budgets[f.dir] -= f.sig.size
			next[path] = f
		}
	}
	s.retainFiles(next)
	before := s.replace(next)
	s.apply()
	s.report(before, read)
	s.o.Scanned()
	return true
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
