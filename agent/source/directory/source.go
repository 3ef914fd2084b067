package directory

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/nearside-mesh/nearside/agent/base/debounce"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Dir is a directory of resource files.
type Dir struct {
	Path string // absolute
	// Role limits what the files may hold; "": nothing does.
	Role string
}

// Options is what a [Source] needs. Dirs, Registry and Store are required.
type Options struct {
	Dirs []Dir // none inside another
	// May returns nil when a role lets files have what the action makes, else why not. Nil: no role
	// lets them have anything.
	May      func(role string, a access.Action) error
	Registry *resource.Registry
	Store    *store.Store
	Log      *slog.Logger     // nil: nothing is logged
	Now      func() time.Time // nil: time.Now
	// Scanned is called after every scan, whole or of single files, when its result can be read; it
	// must not block. Nil: not called.
	Scanned func()

	// Watcher makes what tells of changes; an error means polling. Nil: fsnotify.NewWatcher.
	Watcher func() (*fsnotify.Watcher, error)

	Quiet time.Duration // without events before a scan; default 5 ms
	// that a file with fewer resources than before must be old, since its writer may be at work;
	// default 20 ms
	Rest    time.Duration
	Ceiling time.Duration // from the first event to the scan at the latest; default 1 s
	Settle  time.Duration // that an empty file keeps its last good content, since its writer may be slow; default 1 s
	// the same of one that vanishes beside others, since editors delete and create; default Settle,
	// else 150 ms
	Gone time.Duration
	// between scans without events; default 30 s, a tenth of it while a directory cannot be watched or
	// read
	Poll time.Duration

	FileBytes  int64 // of one file, checked before it is read; default 16 MiB
	TotalBytes int64 // of all files of a directory; default 128 MiB
	Files      int   // of a directory; default 10,000
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
	o.Gone = cmp.Or(o.Gone, o.Settle, 150*time.Millisecond)
	o.Settle = cmp.Or(o.Settle, time.Second)
	o.Poll = cmp.Or(o.Poll, 30*time.Second)
	o.FileBytes = cmp.Or(o.FileBytes, 16<<20)
	o.TotalBytes = cmp.Or(o.TotalBytes, 128<<20)
	o.Files = cmp.Or(o.Files, 10_000)
	return o
}

// Source keeps the store in line with directories of resource files.
//
// It works by level. A burst of events leads to one scan, which reads the files that differ from
// the last scan and applies the difference to the store in one batch: of the files alone that the
// events name, where these are regular files, else of all directories, as at every poll. A file
// with a fault retains its last good content, over restarts too, since the store remembers which
// file a resource came from. One that vanishes or is emptied retains it for the settle time, in
// case its writer is just between two steps; only the first scan, before anybody is served,
// believes it at once. Of two files with one resource the first by path holds. A directory that is
// missing or cannot be listed changes nothing, and until all can be listed, what came from a
// directory that is not configured any more stays too. A resource that the role of its directory
// does not allow is refused; the others of its file stand.
type Source struct {
	o      Options
	rescan chan struct{} // one slot

	mu     sync.Mutex            // held by a scan; guards the rest
	files  map[string]*fileState // by path
	dirs   map[string]*dirState  // by path
	again  bool                  // other sources changed the same resources all the time
	moving map[string]bool       // files that changed while they were read, or that may not be written to their end
	begun  bool                  // there was a scan before
	wake   time.Time             // when a file has settled next; zero: none is waited for

	status atomic.Pointer[[]api.FileStatus]
}

// New returns a source that knows what the store has from files and has not looked at the
// directories.
func New(o Options) *Source {
	s := &Source{o: o.withDefaults(), rescan: make(chan struct{}, 1), files: map[string]*fileState{},
		dirs: map[string]*dirState{}, moving: map[string]bool{}}
	for _, d := range s.o.Dirs {
		d.Path = filepath.Clean(d.Path)
		s.dirs[d.Path] = &dirState{Dir: d}
	}
	for _, r := range s.o.Store.Snapshot().BySource(store.SourceFile) {
		f := s.files[r.Source.Detail]
		if f == nil {
			f = &fileState{path: r.Source.Detail}
			s.files[f.path] = f
		}
		admitted, refused := s.admit(f.path, []*resource.Resource{r.Resource})
		f.resources, f.refused = append(f.resources, admitted...), append(f.refused, refused...)
		f.active += len(admitted)
		if r.Modified.After(f.loaded) {
			f.loaded = r.Modified
		}
	}
	s.status.Store(&[]api.FileStatus{})
	return s
}

// Rescan asks for a scan soon. It does not wait.
func (s *Source) Rescan() {
	select {
	case s.rescan <- struct{}{}:
	default: // one is asked for already
	}
}

// Scan looks at the directories now and returns when the store has what they hold. What is wrong is
// in [Source.Files]. It is for the start; beside Run, use [Source.Rescan].
func (s *Source) Scan() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scan()
	s.begun = true
}

// Run watches the directories until ctx ends.
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
			if path := w.file(e); ok && path != "" {
				touched[path] = true
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
				s.o.Log.Warn("watching the resource directories failed; they are polled too", "error", err)
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
	if s.anyFault() || !w.works() {
		wait /= 10
	}
	if !s.wake.IsZero() {
		wait = min(wait, time.Until(s.wake))
	}
	return wait
}

// watchAndScan watches, then scans. A scan can show more places to watch, and what happened there
// before they were watched needs one more scan.
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

// links returns the paths of files that are symbolic links, which may lead out of their directory.
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

// unsettled reports whether there has to be one more scan soon, and adds the files that it is
// about.
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
	next := make(map[string]*fileState, len(s.files))
	for _, path := range slices.Sorted(maps.Keys(s.dirs)) {
		s.scanDir(s.dirs[path], next)
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

// scanDir reads the files of a directory into next.
func (s *Source) scanDir(d *dirState, next map[string]*fileState) {
	names, err := listResources(d.Path, s.o.Files)
	if err != nil {
		s.dirFault(d, err)
		return
	}
	d.fault = nil
	budget := s.o.TotalBytes
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
}

// scanFiles looks at single files. It returns false, and has changed nothing, where more than their
// content may have changed: then all directories have to be scanned.
func (s *Source) scanFiles(paths map[string]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.again || !s.wake.IsZero() || !s.begun {
		return false
	}
	budgets, counts := map[string]int64{}, map[string]int{}
	for path := range paths {
		dir := filepath.Dir(path)
		if s.unseen(path) {
			return false
		}
		budgets[dir] = s.o.TotalBytes
	}
	for path, f := range s.files {
		counts[filepath.Dir(path)]++
		if !paths[path] {
			budgets[filepath.Dir(path)] -= f.sig.size
		}
	}
	clear(s.moving)
	next := maps.Clone(s.files)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		dir := filepath.Dir(path)
		prev := s.files[path]
		if prev == nil {
			prev = &fileState{path: path}
		}
		f := s.read(prev, budgets[dir])
		if f == nil || f.link || prev.link || f.empty {
			return false
		}
		if next[path] == nil {
			counts[dir]++
		}
		if counts[dir] > s.o.Files {
			return false
		}
		budgets[dir] -= f.sig.size
		next[path] = f
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
