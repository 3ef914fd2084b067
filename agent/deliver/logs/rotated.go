package logs

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/rotation"
)

// RotatedFile is an open file that whoever has opened it keeps: it need not be run.
type RotatedFile interface {
	Append(ctx context.Context, batch []byte) (n, dropped int, err error)
	Stats() rotation.Stats
	Close() error
}

// rotated is the [Output] of a file, whose limits may change while lines come.
type rotated struct {
	path string
	open func(limits draft.Rotation) (RotatedFile, error)

	changing sync.Mutex // held while limits change
	mu       sync.Mutex
	file     RotatedFile
	limits   draft.Rotation
	changed  chan struct{} // closed when file is another one
	closed   bool
	fault    error // why the limits are not as they should be

	written, dropped, bytes atomic.Uint64
}

// NewRotated opens the output of a file below, by a function that opens it with limits.
func NewRotated(path string, limits draft.Rotation, open func(draft.Rotation) (RotatedFile, error)) (Output, error) {
	f, err := open(limits)
	if err != nil {
		return nil, err
	}
	return &rotated{path: path, open: open, file: f, limits: limits, changed: make(chan struct{})}, nil
}

// SetLimits gives the file other limits. Writers wait for it. Where it cannot be opened with these
// it is opened with the old ones.
func (r *rotated) SetLimits(limits draft.Rotation) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	old, before := r.file, r.limits
	r.mu.Unlock()
	if before == limits {
		return nil
	}
	err := old.Close()
	next, failed := r.open(limits)
	var again error
	if failed != nil {
		limits = before
		next, again = r.open(before)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault = failed; again != nil {
		r.limits = draft.Rotation{MaxFileSize: draft.Unset - 1} // none, so that it is tried again; writers wait
		return failed
	}
	if r.closed {
		return errors.Join(err, next.Close())
	}
	r.file, r.limits = next, limits
	close(r.changed)
	r.changed = make(chan struct{})
	return errors.Join(err, failed)
}

// Write implements [accesslog.Destination].
func (r *rotated) Write(ctx context.Context, batch []byte) (int, error) {
	n, _, err := r.Append(ctx, batch)
	return n, err
}

// Append implements [accesslog.Appender].
func (r *rotated) Append(ctx context.Context, batch []byte) (done, dropped int, err error) {
	for {
		r.mu.Lock()
		file, changed, closed := r.file, r.changed, r.closed
		r.mu.Unlock()
		n, lost, err := file.Append(ctx, batch[done:])
		lines := bytes.Count(batch[done:done+n], []byte{'\n'})
		r.written.Add(uint64(max(0, lines-lost))) // #nosec G115 -- counts
		r.dropped.Add(uint64(lost))               // #nosec G115 -- counts
		r.bytes.Add(uint64(n))                    // #nosec G115 -- counts
		done, dropped = done+n, dropped+lost
		if closed || !errors.Is(err, rotation.ErrClosed) {
			return done, dropped, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return done, dropped, context.Cause(ctx)
		}
	}
}

// Recover says how much of what was being written when an earlier agent was killed is in the file,
// as [rotation.File.Recover].
func (r *rotated) Recover(p rotation.Place, front []byte) int {
	r.mu.Lock()
	file := r.file
	r.mu.Unlock()
	if f, ok := file.(interface {
		Recover(rotation.Place, []byte) int
	}); ok {
		return f.Recover(p, front)
	}
	return 0
}

// Stats implements [Output].
func (r *rotated) Stats() accesslog.Stats {
	r.mu.Lock()
	file, fault := r.file, r.fault
	r.mu.Unlock()
	st := file.Stats()
	s := accesslog.Stats{BytesIn: r.bytes.Load(), Written: r.written.Load(), Oversize: st.Oversize}
	if n := r.dropped.Load(); n > 0 {
		s.Dropped = map[accesslog.Cause]uint64{accesslog.CauseDiskFull: n}
		s.In = n
	}
	s.In += s.Written
	if err := errors.Join(st.Health, fault); err != nil {
		s.Health = err.Error()
	}
	return s
}

// Run implements [Output]. The file is kept by whoever has opened it.
func (r *rotated) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close implements [Output].
func (r *rotated) Close() error {
	r.mu.Lock()
	r.closed = true
	file := r.file
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	return file.Close()
}

// Discard implements [Output]. A file stays.
func (r *rotated) Discard() {}

// RotationOptions are those of a file of a policy, whose own limits go before those of the config.
func RotationOptions(c *config.Config, path string, own draft.Rotation) rotation.Options {
	limits := c.AccessLog.Files
	for _, l := range []struct {
		own int
		to  *int
	}{{own.MaxFileSize, &limits.MaxFileSize}, {own.MaxFiles, &limits.MaxFiles}, {own.MaxFileAge, &limits.MaxFileAge}} {
		if l.own != draft.Unset {
			*l.to = l.own
		}
	}
	return FileOptions(c, filepath.Clean(path), limits)
}
