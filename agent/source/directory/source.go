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
	// Role limits the allowed resources; "": no limit.
	Role string
	// Publish is the ID under which the pool owns the resources; "": they stay on this node.
	Publish string
}

// Options configures a [Source]. Dirs, Registry, and Store are required.
type Options struct {
	Dirs []Dir // must not contain each other
	// May returns nil if a role allows an action, else the reason. Nil: roles allow nothing.
	May      func(role string, a access.Action) error
	Registry *resource.Registry
	Store    *store.Store
	Log      *slog.Logger     // nil: no logs
	Now      func() time.Time // nil: time.Now
	// OfNode reports whether resources of a kind belong to a node, so they cannot be published. Nil:
	// no kind does.
	OfNode func(kind string) bool
	// InPool reports whether the pool has a version of a published directory. It must not block. Nil:
	// it has none.
	InPool func(id string) bool
	// Scanned is called after every scan, of all or of single files, when its result is available. It
	// must not block. Nil: not called.
	Scanned func()

	// Watcher creates the watcher; on an error, the source polls. Nil: fsnotify.NewWatcher.
	Watcher func() (*fsnotify.Watcher, error)

	Quiet time.Duration // time without events before a scan; default 5 ms
	// Rest is the minimum age of a file with fewer resources than before, since it may still be
	// written; default 20 ms.
	Rest    time.Duration
	Ceiling time.Duration // maximum time from the first event to the scan; default 1 s
	Retain  time.Duration // how long an empty file retains its last good content; default 1 s
	// RetainDeleted is the same for a deleted file if other files remain, since editors delete and
	// create; default Retain if set, else 150 ms.
	RetainDeleted time.Duration
	Settle        time.Duration // RetainDeleted while no events arrive; default 45 ms unless it is set
	// Poll is the interval of scans without events; default 30 s. It is a tenth of that while a
	// directory cannot be watched or read.
	Poll time.Duration

	FileBytes  int64 // limit of one file, checked before reading; default 16 MiB
	TotalBytes int64 // limit of all files in a directory; default 128 MiB
	Files      int   // limit of files in a directory; default 10,000
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
	o.Settle = cmp.Or(o.Settle, o.RetainDeleted, o.Retain, 45*time.Millisecond)
	o.RetainDeleted = cmp.Or(o.RetainDeleted, o.Retain, 150*time.Millisecond)
	o.Retain = cmp.Or(o.Retain, time.Second)
	o.Poll = cmp.Or(o.Poll, 30*time.Second)
	o.FileBytes = cmp.Or(o.FileBytes, 16<<20)
	o.TotalBytes = cmp.Or(o.TotalBytes, 128<<20)
	o.Files = cmp.Or(o.Files, 10_000)
	return o
}

// Source keeps the store up to date with directories of resource files.
//
// A burst of events leads to one scan. It reads the files that have changed and applies the
// difference to the store in one batch. If all events name regular files, only those are scanned,
// and files whose grace time ends, otherwise all directories, as in every poll. A file with a fault
// retains its last good content, even after a restart, because the store knows the file of each
// resource. A file that vanishes or is emptied retains its content for the grace time, in case its
// writer is between two steps. Only the first scan, before any proxy is served, removes it at once.
// If two files have the same resource, the first by path wins. A directory that cannot be listed
// changes nothing, and until all directories can be listed, the resources of directories that are
// no longer configured stay too. A resource that the role of its directory does not allow is
// refused; the other resources of the file are used.
type Source struct {
	o      Options
	rescan chan struct{} // one slot

	mu       sync.Mutex            // held during a scan; guards the fields below
	files    map[string]*fileState // by path
	dirs     map[string]*dirState  // by path
	reapply  bool                  // other sources kept changing the same resources
	unstable map[string]bool       // files that changed while being read, or that may be incomplete
	begun    bool                  // a scan has completed before
	wake     time.Time             // next end of a grace time, or zero
	order    []string              // at least the paths of files, sorted

	status    atomic.Pointer[[]api.FileStatus]
	published atomic.Pointer[[]Published] // without revisions
}

// New returns a source that knows the resources of files in the store, and has not read the
// directories yet.
func New(o Options) *Source {
	s := &Source{o: o.withDefaults(), rescan: make(chan struct{}, 1), files: map[string]*fileState{},
		dirs: map[string]*dirState{}, unstable: map[string]bool{}}
	for _, d := range s.o.Dirs {
		d.Path = filepath.Clean(d.Path)
		s.dirs[d.Path] = &dirState{Dir: d, marked: d.Role == access.TemplateKubernetes}
	}
	for _, r := range s.o.Store.Snapshot().BySource(store.SourceFile) {
		f := s.files[r.Source.Detail]
		if f == nil {
			f = newFile(r.Source.Detail)
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
	s.published.Store(&[]Published{})
	return s
}

// Rescan requests a scan. It does not block.
func (s *Source) Rescan() {
	select {
	case s.rescan <- struct{}{}:
	default: // already requested
	}
}

// Scan reads the directories and returns when the store is up to date. It is for the start; while
// Run is active, use [Source.Rescan].
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
	polled := time.Now()
	poll := time.NewTimer(s.pollTime(w, polled))
	defer poll.Stop()
	wait := debounce.New(s.o.Quiet, s.o.Ceiling)
	defer wait.Stop()
	touched, whole := map[string]bool{}, false // files to read after the quiet time
	if s.needsScan(touched) {
		wait.Due()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.events():
			s.saw(w.dirsOf(e))
			switch path := w.file(e); {
			case !ok:
				w.lost()
				whole = true
			case !w.relevant(e):
				continue
			case path != "":
				touched[path] = true
			default:
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
			// After an overflow, the scan finds the changes of lost events.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				s.o.Log.Warn("cannot watch the resource directories; polling them too", "error", err)
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
		}
		wait.Done()
		if whole || !w.works() || time.Since(polled) >= s.interval(w) || !s.scanFiles(touched) {
			s.watchAndScan(w)
			polled = time.Now()
		}
		clear(touched)
		whole = false
		poll.Reset(s.pollTime(w, polled))
		if s.needsScan(touched) {
			wait.Due()
		}
	}
}

// interval returns the time between scans of all directories without events.
func (s *Source) interval(w *dirWatch) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.anyFault() || !w.works() {
		return s.o.Poll / 10
	}
	return s.o.Poll
}

// pollTime returns how long to wait for events before the next scan: of all directories, which were
// scanned at a given time, or of files whose grace time ends.
func (s *Source) pollTime(w *dirWatch, polled time.Time) time.Duration {
	wait := s.interval(w) - time.Since(polled)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wake.IsZero() {
		wait = min(wait, time.Until(s.wake))
	}
	return wait
}

// watchAndScan updates the watches, then scans. A scan can find further directories to watch.
// Changes in them before the watch started require another scan.
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

// links returns the paths of files that are symbolic links, which may point outside their
// directory.
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

// needsScan reports whether another scan is necessary soon, and adds its files to touched.
func (s *Source) needsScan(touched map[string]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(touched, s.unstable)
	return s.reapply || len(s.unstable) > 0
}

// retry applies the files again if other sources had some of their resources.
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

// scan implements Scan. s.mu is held.
func (s *Source) scan() {
	defer s.o.Scanned()
	s.reapply = false
	clear(s.unstable)
	next := make(map[string]*fileState, len(s.files))
	for _, path := range slices.Sorted(maps.Keys(s.dirs)) {
		s.scanDir(s.dirs[path], next)
	}
	s.retainFiles(next)
	before := s.replace(next)
	s.apply()
	s.report(before, s.order)
}

// replace makes next the files, and returns those before. s.mu is held.
func (s *Source) replace(next map[string]*fileState) (before map[string]*fileState) {
	before = s.files
	s.files, s.order = next, slices.Sorted(maps.Keys(next))
	return before
}

// report updates the results of Files and Published after apply, and logs the faults of files that
// were read. s.mu is held.
func (s *Source) report(before map[string]*fileState, read []string) {
	s.forgetMoved()
	s.publish() // before logging, so that a reader of the log finds the fault in the status
	for _, path := range read {
		if f := s.files[path]; f != nil {
			s.logFaults(before[path], f)
		}
	}
}

// scanDir reads the files of a directory into next.
func (s *Source) scanDir(d *dirState, next map[string]*fileState) {
	names := s.list(d)
	if d.fault != nil {
		return
	}
	budget := s.o.TotalBytes
	for _, path := range names {
		prev := s.files[path]
		if prev == nil {
			prev = newFile(path)
		}
		f := s.read(prev, budget)
		if f == nil {
			continue // deleted since the listing
		}
		budget -= f.sig.size
		next[path] = f
	}
}
