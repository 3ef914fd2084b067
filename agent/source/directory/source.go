package directory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/nearside-mesh/nearside/agent/debounce"
	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/store"
)

// Options is what a [Source] needs. Dir, Registry and Store are required.
type Options struct {
	Dir      string // absolute
	Registry *resource.Registry
	Store    *store.Store
	Log      *slog.Logger     // nil: nothing is logged
	Now      func() time.Time // nil: time.Now
	// Scanned is called after every scan, whole or of single files, when its result can be read; it must not block. Nil: not called.
	Scanned func()

	// Watcher makes what tells of changes; an error means polling. Nil: fsnotify.NewWatcher.
	Watcher func() (*fsnotify.Watcher, error)

	Quiet   time.Duration // without events before a scan; default 5 ms
	Rest    time.Duration // that a file with fewer resources than before must be old, since its writer may be at work; default 20 ms
	Ceiling time.Duration // from the first event to the scan at the latest; default 1 s
	Settle  time.Duration // that a vanished or empty file keeps its last good content; default 1 s
	Poll    time.Duration // between scans without events; default 30 s, a tenth of it while the directory cannot be watched or read

	FileBytes  int64 // of one file, checked before it is read; default 16 MiB
	TotalBytes int64 // of all files; default 128 MiB
	Files      int   // default 10,000
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Scanned == nil {
		o.Scanned = func() {}
	}
	if o.Watcher == nil {
		o.Watcher = fsnotify.NewWatcher
	}
	o.Quiet = cmp.Or(o.Quiet, 5*time.Millisecond)
	o.Rest = cmp.Or(o.Rest, 20*time.Millisecond)
	o.Ceiling = cmp.Or(o.Ceiling, time.Second)
	o.Settle = cmp.Or(o.Settle, time.Second)
	o.Poll = cmp.Or(o.Poll, 30*time.Second)
	o.FileBytes = cmp.Or(o.FileBytes, 16<<20)
	o.TotalBytes = cmp.Or(o.TotalBytes, 128<<20)
	o.Files = cmp.Or(o.Files, 10_000)
	return o
}

// Source keeps the store in line with a directory of resource files.
//
// It works by level. A burst of events leads to one scan, which reads the files that differ from the last scan and applies
// the difference to the store in one batch: of the files alone that the events name, where these are regular files, else of
// the whole directory, as at every poll. A file with a fault retains its last good content, over restarts too, since the
// store remembers which file a resource came from. One that vanishes or is emptied retains it for the settle time, in case
// its writer is just between two steps; only the first scan, before anybody is served, believes it at once. Of two files
// with one resource the first by name holds. A directory that is missing or cannot be listed changes nothing.
type Source struct {
	o      Options
	rescan chan struct{} // one slot

	mu     sync.Mutex            // held by a scan; guards the rest
	files  map[string]*fileState // by path
	fault  resource.Faults       // of the directory as a whole
	again  bool                  // other sources changed the same resources all the time
	moving map[string]bool       // files that changed while they were read, or that may not be written to their end
	begun  bool                  // there was a scan before
	wake   time.Time             // when a file has settled next; zero: none is waited for

	status atomic.Pointer[[]inspect.FileStatus]
}

// New returns a source that knows what the store has from files and has not looked at the directory.
func New(o Options) *Source {
	s := &Source{o: o.withDefaults(), rescan: make(chan struct{}, 1), files: map[string]*fileState{}, moving: map[string]bool{}}
	for _, r := range s.o.Store.Snapshot().BySource(store.SourceFile) {
		f := s.files[r.Source.Detail]
		if f == nil {
			f = &fileState{path: r.Source.Detail}
			s.files[f.path] = f
		}
		f.resources = append(f.resources, r.Resource)
		f.active++
		if r.Modified.After(f.loaded) {
			f.loaded = r.Modified
		}
	}
	s.status.Store(&[]inspect.FileStatus{})
	return s
}

// Files returns the state of every file, sorted by path; one for the directory itself comes first when it has a fault.
func (s *Source) Files() []inspect.FileStatus { return *s.status.Load() }

// Rescan asks for a scan soon. It does not wait.
func (s *Source) Rescan() {
	select {
	case s.rescan <- struct{}{}:
	default: // one is asked for already
	}
}

// Scan looks at the directory now and returns when the store has what it holds. What is wrong is in [Source.Files].
// It is for the start; beside Run, use [Source.Rescan].
func (s *Source) Scan() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scan()
	s.begun = true
}

// Run watches the directory until ctx ends.
func (s *Source) Run(ctx context.Context) {
	w := newDirWatch(s.o)
	defer w.close()
	changed, stop := s.o.Store.Watch()
	defer stop()

	s.watchAndScan(w)
	poll := time.NewTimer(s.pollTime(w))
	defer poll.Stop()
	wait := debounce.New(s.o.Quiet, s.o.Ceiling)
	defer wait.Stop()
	touched, whole := map[string]bool{}, false // what to read at the end of the quiet time
	if s.unsettled(touched) {
		wait.Due()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.events():
			if !ok {
				w.lost()
			} else if !w.concerns(e) {
				continue
			}
			if name := w.file(e); ok && name != "" {
				touched[filepath.Join(s.o.Dir, name)] = true
			} else {
				whole = true
			}
			wait.Due()
			continue
		case err, ok := <-w.errors():
			whole = true
			if !ok {
				w.lost()
				wait.Due()
				continue
			}
			// An overflow has lost events; the scan finds what they were about.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				s.o.Log.Warn("watching the resource directory failed; it is polled too", "dir", s.o.Dir, "error", err)
			}
			wait.Due()
			continue
		case <-changed:
			s.retry()
			continue
		case <-s.rescan:
			whole = true
		case <-wait.C:
		case <-poll.C:
			whole = true
		}
		wait.Done()
		if whole || len(touched) == 0 || !s.scanFiles(touched) {
			s.watchAndScan(w)
		}
		clear(touched)
		whole = false
		poll.Reset(s.pollTime(w))
		if s.unsettled(touched) {
			wait.Due()
		}
	}
}

// pollTime returns how long to wait for something to happen before the next scan.
func (s *Source) pollTime(w *dirWatch) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.o.Poll
	if s.fault != nil || !w.works() {
		wait /= 10
	}
	if !s.wake.IsZero() {
		wait = min(wait, time.Until(s.wake))
	}
	return wait
}

// watchAndScan watches, then scans. A scan can show more places to watch, and what happened there before they were watched
// needs one more scan.
func (s *Source) watchAndScan(w *dirWatch) {
	for range 4 {
		if !w.follow(s.links()) {
			break
		}
	}
	s.Scan()
	if w.follow(s.links()) {
		s.Scan()
	}
}

// links returns the paths of files that are symbolic links, which may lead out of the directory.
func (s *Source) links() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, f := range s.files {
		if f.link {
			out = append(out, f.path)
		}
	}
	slices.Sort(out)
	return out
}

// unsettled reports whether there has to be one more scan soon, and adds the files that it is about.
func (s *Source) unsettled(touched map[string]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(touched, s.moving)
	return s.again || len(s.moving) > 0
}

// retry applies again what another source has, in case it is free now.
func (s *Source) retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if len(f.conflicts) > 0 {
			s.apply()
			s.publish()
			return
		}
	}
}

// scan does the work of Scan. s.mu is held.
func (s *Source) scan() {
	defer s.o.Scanned()
	s.again = false
	clear(s.moving)
	names, err := listResources(s.o.Dir, s.o.Files)
	if err != nil {
		s.dirFault(err)
		s.publish()
		return
	}
	s.fault = nil
	budget := s.o.TotalBytes
	next := make(map[string]*fileState, len(names))
	for _, path := range names {
		prev := s.files[path]
		if prev == nil {
			prev = &fileState{path: path}
		}
		f := s.read(prev, budget)
		if f == nil {
			continue // it has vanished since it was listed
		}
		budget -= f.sig.size
		next[path] = f
	}
	s.settleFiles(next)
	before := s.files
	s.files = next
	s.apply()
	s.forgetMoved()
	s.publish() // before what is wrong is logged: whoever reads that finds it in the status
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		s.logFaults(before[path], s.files[path])
	}
}

// scanFiles looks at single files. It returns false, and has changed nothing, where more than their content may have
// changed: then the whole directory has to be scanned.
func (s *Source) scanFiles(paths map[string]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil || s.again || !s.wake.IsZero() || !s.begun {
		return false
	}
	clear(s.moving)
	budget := s.o.TotalBytes
	for path, f := range s.files {
		if !paths[path] {
			budget -= f.sig.size
		}
	}
	next := maps.Clone(s.files)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		prev := s.files[path]
		if prev == nil {
			prev = &fileState{path: path}
		}
		f := s.read(prev, budget)
		if f == nil || f.link || prev.link || f.empty {
			return false
		}
		budget -= f.sig.size
		next[path] = f
	}
	if len(next) > s.o.Files {
		return false
	}
	before := s.files
	s.files = next
	s.apply()
	s.publish()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		s.logFaults(before[path], next[path])
	}
	s.o.Scanned()
	return true
}

func (s *Source) dirFault(err error) {
	why := fmt.Sprintf("the resource directory cannot be read: %v; what was loaded from it stays in force. Create it (empty, to remove all), or set resources.dir", err)
	if s.fault == nil || s.fault[0].Reason != why {
		s.o.Log.Warn("the resource directory cannot be read; what was loaded from it stays in force", "dir", s.o.Dir, "error", err)
	}
	s.fault = resource.Faults{{File: s.o.Dir, Reason: why}}
	// What cannot be seen does not settle.
	s.wake = time.Time{}
	for _, f := range s.files {
		f.since = time.Time{}
	}
}

// logFaults logs what is new about a file; prev is nil for one that was not there.
func (s *Source) logFaults(prev, f *fileState) {
	if prev == nil {
		prev = &fileState{}
	}
	switch {
	case slices.Equal(prev.faults, f.faults):
	case len(f.faults) == 0:
		s.o.Log.Info("resource file is valid again", "file", f.path)
	default:
		s.o.Log.Error("resource file has faults", "file", f.path, "faults", len(f.faults), "first", f.faults[0].String(), "retained", len(f.resources))
	}
}

// publish makes the state readable. s.mu is held.
func (s *Source) publish() {
	out := make([]inspect.FileStatus, 0, len(s.files)+1)
	if s.fault != nil {
		out = append(out, inspect.FileStatus{Path: s.o.Dir, Faults: s.fault})
	}
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[path]
		st := inspect.FileStatus{Path: path, Resources: f.active, Loaded: f.loaded, Conflicts: maps.Clone(f.conflicts)}
		if !f.vanished {
			st.Faults = f.faults
		}
		if f.retained() {
			st.Missing = f.missing()
			if !f.since.IsZero() {
				st.KeptUntil = f.since.Add(s.o.Settle)
			}
		}
		st.Stale = len(f.resources) > 0 && (len(st.Faults) > 0 || st.Missing != "")
		out = append(out, st)
	}
	s.status.Store(&out)
}
