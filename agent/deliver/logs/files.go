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

	"github.com/nearside-mesh/nearside/rotation"
)

// Files opens each rotated file once, however many write into it. Its methods may be called at the
// same time.
type Files struct {
	log *slog.Logger

	mu     sync.Mutex // never held while a file waits for its disk
	open   map[string]*SharedFile
	opened chan *SharedFile // for Run; has room for all that may be open
	closed rotation.Stats   // counts of files that are closed
}

// mostFiles bounds the files that are open at a time.
const mostFiles = 4096

// NewFiles returns a registry without files.
func NewFiles(log *slog.Logger) *Files {
	return &Files{log: log, open: map[string]*SharedFile{}, opened: make(chan *SharedFile, mostFiles)}
}

// SharedFile is a rotated file that several may write into. Each who has it from [Files.Open] calls
// Close once.
type SharedFile struct {
	*rotation.File
	path string
	opts rotation.Options
	of   *Files
	uses int // guarded by of.mu
}

// Path is that of the active file.
func (s *SharedFile) Path() string { return s.path }

// Open opens a file, or shares the one that is open. Whoever opens it again must ask for the same
// limits and behavior.
func (fs *Files) Open(opts rotation.Options) (*SharedFile, error) {
	path, err := filepath.Abs(opts.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.Path, err)
	}
	// The directory may be reached by two paths; its name without links is the same. A directory that
	// is a link itself is for rotation to refuse.
	if above, err := filepath.EvalSymlinks(filepath.Dir(filepath.Dir(path))); err == nil {
		path = filepath.Join(above, filepath.Base(filepath.Dir(path)), filepath.Base(path))
	}
	opts.Path = path
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if s := fs.open[path]; s != nil {
		if !same(s.opts, opts) {
			return nil, otherLimits(path)
		}
		s.uses++
		return s, nil
	}
	if len(fs.open) >= mostFiles {
		return nil, fmt.Errorf("%s: %d log files are open, and no more are allowed; write several logs into one file",
			path, mostFiles)
	}
	f, err := rotation.Open(opts)
	if err != nil {
		return nil, err
	}
	s := &SharedFile{File: f, path: path, opts: opts, of: fs, uses: 1}
	select {
	case fs.opened <- s:
	default:
		return nil, errors.Join(fmt.Errorf("%s: more than %d log files were opened before they are run", path, mostFiles),
			f.Close())
	}
	fs.open[path] = s
	return s, nil
}

// same reports whether two users want the same of a file. Functions are not compared.
func same(a, b rotation.Options) bool {
	return a.Limits == b.Limits && a.Group == b.Group && a.MinFree == b.MinFree && a.PurgeWhenFull == b.PurgeWhenFull &&
		a.Compress == b.Compress && a.Sync == b.Sync && a.OnFull == b.OnFull
}

// SetLimits gives the file other limits, which its only user may do.
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
	return fmt.Errorf("%s is open with other limits; give all that write into it the same, or another file", path)
}

// Close closes the file once nobody else uses it. A writer that waits then ends with
// rotation.ErrClosed.
func (s *SharedFile) Close() error {
	s.of.mu.Lock()
	s.uses--
	last := s.uses == 0
	s.of.mu.Unlock()
	if !last {
		return nil
	}
	// The path stays taken until the lock of the file is free.
	err := s.File.Close()
	s.of.mu.Lock()
	if s.of.open[s.path] == s {
		delete(s.of.open, s.path)
		s.of.closed = add(s.of.closed, s.Stats(), 0)
	}
	s.of.mu.Unlock()
	return err
}

// Run keeps the files, those that are opened meanwhile too, until ctx ends. It ends after those who
// write.
func (fs *Files) Run(ctx context.Context) error {
	var g errgroup.Group
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case s := <-fs.opened:
			g.Go(func() error {
				if err := s.File.Run(ctx); err != nil && !errors.Is(err, rotation.ErrClosed) {
					fs.log.Error("a log file is not kept", "file", s.path, "error", err)
				}
				return nil
			})
		}
	}
}

// Stats returns the counts of the open files, by path.
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

// Total returns the counts of all files since the start, closed ones included, and the size of the
// open ones.
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

// add returns the counts that metrics show of two.
func add(a, b rotation.Stats, size int64) rotation.Stats {
	return rotation.Stats{Bytes: a.Bytes + b.Bytes, Rotations: a.Rotations + b.Rotations, Outside: a.Outside + b.Outside,
		Size: a.Size + size}
}

// Paths returns those of the open files.
func (fs *Files) Paths() []string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Sorted(maps.Keys(fs.open))
}
