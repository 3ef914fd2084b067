package logs

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// RotatedFile is an open file whose owner calls Run. *SharedFile implements it.
type RotatedFile interface {
	Append(ctx context.Context, batch []byte) (n, dropped int, err error)
	Recover(p rotation.Extent, front []byte) int
	SetLimits(rotation.Limits) error
	LineStats() accesslog.Stats
	Close() error
}

// Write implements [accesslog.Destination].
func (s *SharedFile) Write(ctx context.Context, batch []byte) (int, error) {
	n, _, err := s.over.append(ctx, batch)
	return n, err
}

// Append implements [accesslog.Appender]. While the file cannot be written, lines go to its queue.
func (s *SharedFile) Append(ctx context.Context, batch []byte) (n, dropped int, err error) {
	return s.over.append(ctx, batch)
}

// Recover returns how much of the data being written when an earlier agent was killed is stored;
// see [rotation.File.Recover].
func (s *SharedFile) Recover(p rotation.Extent, front []byte) int { return s.over.recover(p, front) }

// LineStats returns the counters of the lines of all users of the file since it was opened.
func (s *SharedFile) LineStats() accesslog.Stats { return s.over.stats() }

// rotated is the [Output] of a file.
type rotated struct {
	file     RotatedFile
	defaults rotation.Limits
	fault    atomic.Pointer[error] // why new limits are not applied
}

// NewRotated returns the output of a file. defaults replace unset limits of a policy.
func NewRotated(f RotatedFile, defaults rotation.Limits) Output {
	return &rotated{file: f, defaults: defaults}
}

// SetLimits changes the limits of the file. Invalid limits change nothing.
func (r *rotated) SetLimits(limits rotation.Limits) error {
	if err := r.file.SetLimits(limits.Or(r.defaults)); err != nil {
		r.fault.Store(&err)
		return err
	}
	r.fault.Store(nil)
	return nil
}

// Write implements [accesslog.Destination].
func (r *rotated) Write(ctx context.Context, batch []byte) (int, error) {
	n, _, err := r.Append(ctx, batch)
	return n, err
}

// Append implements [accesslog.Appender]. The caller counts dropped lines, so that one lost line is
// not counted at two streams.
func (r *rotated) Append(ctx context.Context, batch []byte) (done, dropped int, err error) {
	return r.file.Append(ctx, batch)
}

// Recover returns how much of the data being written when an earlier agent was killed is stored;
// see [rotation.File.Recover].
func (r *rotated) Recover(p rotation.Extent, front []byte) int { return r.file.Recover(p, front) }

// Stats implements [Output].
func (r *rotated) Stats() accesslog.Stats {
	s := r.file.LineStats()
	n := s.Dropped[accesslog.CauseDiskFull] // counted by the callers of Append
	delete(s.Dropped, accesslog.CauseDiskFull)
	s.In -= min(n, s.In)
	if fault := r.fault.Load(); fault != nil {
		s.Health = strings.TrimPrefix(s.Health+"\n"+(*fault).Error(), "\n")
	}
	return s
}

// Run implements [Output]. It only waits for ctx, because the owner of the file runs the writer.
func (r *rotated) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close implements [Output].
func (r *rotated) Close() error { return r.file.Close() }

// Discard implements [Output]. It keeps the file.
func (r *rotated) Discard() {}
