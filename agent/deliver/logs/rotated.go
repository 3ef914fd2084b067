package logs

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// RotatedFile is an open file whose owner calls Run. *SharedFile implements it.
type RotatedFile interface {
	Append(ctx context.Context, batch []byte) (n, dropped int, err error)
	Recover(p rotation.Extent, front []byte) int
	SetLimits(rotation.Limits) error
	Stats() rotation.Stats
	Close() error
}

// rotated is the [Output] of a file.
type rotated struct {
	file     RotatedFile
	defaults rotation.Limits
	fault    atomic.Pointer[error] // why new limits are not applied

	delivered, dropped, bytes atomic.Uint64
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

// Append implements [accesslog.Appender].
func (r *rotated) Append(ctx context.Context, batch []byte) (done, dropped int, err error) {
	done, dropped, err = r.file.Append(ctx, batch)
	lines := bytes.Count(batch[:done], []byte{'\n'})
	r.delivered.Add(uint64(max(0, lines-dropped))) // #nosec G115 -- counts
	r.dropped.Add(uint64(dropped))                 // #nosec G115 -- counts
	r.bytes.Add(uint64(done))                      // #nosec G115 -- counts
	return done, dropped, err
}

// Recover returns how much of the data being written when an earlier agent was killed is in the
// file; see [rotation.File.Recover].
func (r *rotated) Recover(p rotation.Extent, front []byte) int { return r.file.Recover(p, front) }

// Stats implements [Output].
func (r *rotated) Stats() accesslog.Stats {
	st := r.file.Stats()
	s := accesslog.Stats{BytesIn: r.bytes.Load(), Written: r.delivered.Load(), Oversize: st.Oversize}
	if n := r.dropped.Load(); n > 0 {
		s.Dropped = map[accesslog.Cause]uint64{accesslog.CauseDiskFull: n}
		s.In = n
	}
	s.In += s.Written
	err := st.Health
	if fault := r.fault.Load(); fault != nil {
		err = errors.Join(err, *fault)
	}
	if err != nil {
		s.Health = err.Error()
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
