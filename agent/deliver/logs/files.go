package logs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/rotation"
)

// Files opens each rotated file once, for any number of writers. It is safe for concurrent use.
type Files struct {
	// Spool configures the queues of files that cannot be written. Set it before the first Open.
	Spool FileSpool

	log   *slog.Logger
	paths *logpaths.Registry

	mu     sync.Mutex // never held while a file waits for its disk
	open   map[string]*SharedFile
	opened chan *SharedFile // consumed by Run; has capacity for all open files
	closed rotation.Stats   // counters of closed files
}

// maxFiles limits the number of open files.
const maxFiles = 4096

// NewFiles returns an empty set of files, which paths assigns to owners.
func NewFiles(paths *logpaths.Registry, log *slog.Logger) *Files {
	return &Files{log: log, paths: paths, open: map[string]*SharedFile{}, opened: make(chan *SharedFile, maxFiles)}
}

// SharedFile is a rotated file with any number of users. Each user calls Close once.
type SharedFile struct {
	*rotation.File
	path  string
	name  string // of the claim: path without links
	owner logpaths.Owner
	opts  rotation.Options
	of    *Files
	over  *overflow
	uses  int // guarded by of.mu
}

// Path returns the path of the active file.
func (s *SharedFile) Path() string { return s.path }

// Open opens a file for an owner, or returns the open one. All users must pass the same limits and
// behavior.
func (fs *Files) Open(owner logpaths.Owner, opts rotation.Options) (*SharedFile, error) {
	path, err := filepath.Abs(opts.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.Path, err)
	}
	// Two paths may lead to the same directory, so resolve links above it. rotation refuses a
	// directory that is a link itself.
	if above, err := filepath.EvalSymlinks(filepath.Dir(filepath.Dir(path))); err == nil {
		path = filepath.Join(above, filepath.Base(filepath.Dir(path)), filepath.Base(path))
	}
	opts.Path = path
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if s := fs.open[path]; s != nil {
		if s.owner != owner {
			return nil, fmt.Errorf("%s belongs to %s; use another path", path, s.owner)
		}
		if !sameBehavior(s.opts, opts) {
			return nil, otherLimits(path)
		}
		s.uses++
		return s, nil
	}
	if len(fs.open) >= maxFiles {
		return nil, fmt.Errorf("%s: the limit of %d open log files is reached; write several logs to one file",
			path, maxFiles)
	}
	name, err := fs.paths.Claim(owner, path)
	if err != nil {
		return nil, err
	}
	f, err := rotation.Open(opts)
	if err != nil {
		fs.paths.Release(name)
		return nil, err
	}
	s := &SharedFile{File: f, path: path, name: name, owner: owner, opts: opts, of: fs, uses: 1,
		over: newOverflow(f, opts, fs.Spool, fs.log)}
	select {
	case fs.opened <- s:
	default:
		fs.paths.Release(name)
		return nil, errors.Join(fmt.Errorf("%s: more than %d log files were opened before Run", path, maxFiles),
			s.over.close(), f.Close())
	}
	fs.open[path] = s
	return s, nil
}

// sameBehavior reports whether two users want the same limits and behavior. It does not compare
// functions.
func sameBehavior(a, b rotation.Options) bool {
	return a.Limits == b.Limits && a.Group == b.Group && a.MinFree == b.MinFree && a.PurgeWhenFull == b.PurgeWhenFull &&
		a.Compress == b.Compress && a.Sync == b.Sync && a.OnFull == b.OnFull
}

// SetLimits changes the limits of the file. It fails if the file has other users.
func (s *SharedFile) SetLimits(l rotation.Limits) error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.uses > 1 && s.opts.Limits != l {
		return otherLimits(s.path)
	}
	if err := s.File.SetLimits(l); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	s.opts.Limits = l
	return nil
}

func otherLimits(path string) error {
	return fmt.Errorf("%s is open with other limits; use the same limits everywhere, or another file", path)
}

// Close closes the file after its last user. Then waiting writers get rotation.ErrClosed.
func (s *SharedFile) Close() error {
	s.of.mu.Lock()
	s.uses--
	last := s.uses == 0
	s.of.mu.Unlock()
	if !last {
		return nil
	}
	// Keep the path in the list until the lock of the file is released.
	err := errors.Join(s.over.close(), s.File.Close())
	s.of.mu.Lock()
	if s.of.open[s.path] == s {
		delete(s.of.open, s.path)
		s.of.paths.Release(s.name)
		s.of.closed = add(s.of.closed, s.Stats(), 0)
		s.of.closed.Future = 0
	}
	s.of.mu.Unlock()
	return err
}

// Run runs all files, including those opened later, until ctx ends. Cancel ctx after all writers
// have stopped.
func (fs *Files) Run(ctx context.Context) error {
	var g errgroup.Group
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case s := <-fs.opened:
			g.Go(func() error {
				s.over.run(ctx)
				return nil
			})
			g.Go(func() error {
				if err := s.File.Run(ctx); err != nil && !errors.Is(err, rotation.ErrClosed) {
					fs.log.Error("maintenance of a log file failed", "file", s.path, "error", err)
				}
				return nil
			})
		}
	}
}

// Stats returns the counters of the open files by path.
func (fs *Files) Stats() map[string]rotation.Stats {
	fs.mu.Lock()
	open := maps.Clone(fs.open)
	fs.mu.Unlock()
	out := make(map[string]rotation.Stats, len(open))
	for path, s := range open {
		out[path] = s.Stats()
	}
	return out
}

// Total returns the counters of all files since the start, including closed ones, and the total
// size of the open ones.
func (fs *Files) Total() rotation.Stats {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := fs.closed
	for _, s := range fs.open {
		st := s.Stats()
		out = add(out, st, st.Size)
	}
	return out
}

// add returns the sum of the counters used in metrics.
func add(a, b rotation.Stats, size int64) rotation.Stats {
	return rotation.Stats{Bytes: a.Bytes + b.Bytes, Rotations: a.Rotations + b.Rotations, Outside: a.Outside + b.Outside,
		Recovered: a.Recovered + b.Recovered, Future: a.Future + b.Future, Size: a.Size + size}
}

// Future describes backups with a time in the future, one text per file, sorted.
func (fs *Files) Future() (out []string) {
	stats := fs.Stats()
	for _, path := range slices.Sorted(maps.Keys(stats)) {
		if why := logpaths.Future(path, stats[path].Future); why != "" {
			out = append(out, why)
		}
	}
	return out
}

// Paths returns the paths of the open files.
func (fs *Files) Paths() []string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Sorted(maps.Keys(fs.open))
}
