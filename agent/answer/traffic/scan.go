package traffic

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/workers"
	"github.com/nearside-mesh/nearside/rotation"
)

// Limits of scan.
const (
	flushSize  = 64 << 10  // of output of the part whose turn it is, in bytes
	aheadSize  = 256 << 10 // of output that each later part holds
	maxWorkers = 16
	checkLines = 1024 // lines between two checks of the context
	maxUnread  = 16   // reported errors of backups
)

var errStopped = errors.New("stopped")

// scanner reads the lines of a file and its backups. Several workers read parts of it at the same
// time; their output is written in the order of the lines, and its memory is bounded.
type scanner struct {
	path    string // of the active file
	since   time.Time
	workers int // 0: one for each processor
	stats   rotation.ReaderStats
	// begin returns a function that appends the output of a line. Each worker calls begin once.
	begin func(worker int) func(b []byte, line rotation.Line) []byte
	write func([]byte) error // called by one worker at a time

	parts   *rotation.Parts
	stop    context.CancelFunc
	mu      sync.Mutex
	changed *sync.Cond
	turn    int  // part whose output is written
	stopped bool // the context has ended, or write has failed
	failed  error
}

// scan reads all lines. It returns the errors of [rotation.NewReader] and of the active file, and
// adds others to the stats. It ends early, without an error, if the context ends or write fails.
func (s *scanner) scan(ctx context.Context) error {
	parts, err := rotation.OpenParts(rotation.ReaderOptions{Path: s.path, Since: s.since})
	if err != nil {
		return err
	}
	defer parts.Close()
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	s.parts, s.changed = parts, sync.NewCond(&s.mu)
	if s.workers == 0 {
		s.workers = min(workers.All(), maxWorkers)
	}
	take := make([]func([]byte, rotation.Line) []byte, max(1, s.workers))
	err = workers.Each(s.workers, parts.Len(), func(worker, i int) {
		if take[worker] == nil {
			take[worker] = s.begin(worker)
		}
		var end error
		lines := uint64(0)
		defer func() { s.end(i, lines, end) }()
		end = s.read(ctx, i, take[worker], &lines)
	})
	return errors.Join(err, s.failed)
}

// read processes a part.
func (s *scanner) read(ctx context.Context, i int, take func([]byte, rotation.Line) []byte, lines *uint64) error {
	if ctx.Err() != nil {
		return errStopped
	}
	var b []byte
	err := s.parts.Read(i, func(line rotation.Line) error {
		if b = take(b, line); len(b) >= flushSize {
			if err := s.flush(i, &b, len(b) >= aheadSize); err != nil {
				return err
			}
		}
		if *lines++; *lines%checkLines == 0 && ctx.Err() != nil {
			return errStopped
		}
		return nil
	})
	if failed := s.flush(i, &b, true); err == nil {
		err = failed
	}
	return err
}

// flush writes the output of a part if it is its turn, or waits for it.
func (s *scanner) flush(i int, b *[]byte, wait bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.turn < i && wait && !s.stopped {
		s.changed.Wait()
	}
	switch {
	case s.stopped:
		return errStopped
	case s.turn < i || len(*b) == 0:
		return nil
	}
	err := s.write(*b)
	*b = (*b)[:0]
	if err != nil {
		s.stopped = true
		s.stop()
		s.changed.Broadcast()
		return errStopped
	}
	return nil
}

// end ends a part, and begins the turn of the next one.
func (s *scanner) end(i int, lines uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.turn < i {
		s.changed.Wait()
	}
	s.turn++
	s.stats.Lines += lines
	switch {
	case err == nil:
	case errors.Is(err, errStopped):
		s.stopped = true
	case errors.Is(err, fs.ErrNotExist):
		s.stats.Missed++
	case s.parts.Active(i):
		s.failed = err
	case len(s.stats.Unread) < maxUnread:
		s.stats.Unread = append(s.stats.Unread, err)
	}
	s.changed.Broadcast()
}
