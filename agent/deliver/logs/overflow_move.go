package logs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// Waiting returns the paths of files that are not open and have lines in the queue of an earlier
// agent.
func (fs *Files) Waiting() (paths []string, err error) {
	if fs.Spool.Dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(fs.Spool.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), fileSpoolPrefix) || !e.IsDir() {
			continue
		}
		path := spool.QueuedFile(filepath.Join(fs.Spool.Dir, e.Name())) // "": open, or damaged
		if path != "" && queueName(path) == e.Name() {
			paths = append(paths, path)
		}
	}
	return paths, err
}

// queueName returns the name of the directory of a queue. It has a hash, because a path can be
// longer than a name.
func queueName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return fileSpoolPrefix + hex.EncodeToString(sum[:16])
}

// run moves lines from the queue to the file until ctx ends or the file is closed.
func (o *overflow) run(ctx context.Context) {
	o.mu.Lock()
	ended := make(chan struct{})
	if o.ended = ended; o.closed {
		o.mu.Unlock()
		close(ended)
		return
	}
	o.mu.Unlock()
	defer close(ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.done:
			return
		case <-o.wake:
			o.move(ctx)
		}
	}
}

// move moves lines until the queue is empty.
func (o *overflow) move(ctx context.Context) {
	o.mu.Lock()
	q := o.queue
	o.mu.Unlock()
	if q == nil {
		return
	}
	var synced time.Time
	for wait := firstRetry; ; {
		if now := time.Now(); now.Sub(synced) >= time.Second {
			synced = now
			if err := q.Sync(); err != nil {
				o.log.Warn("cannot sync the spool of a log file", "error", err)
			}
		}
		moved, lost, more, err := q.Move(ctx, o.file.TryAppend)
		o.count.Spooled.Add(-moved - lost)
		o.count.Written.Add(moved)
		o.count.Drop(accesslog.CauseSpoolBad, lost)
		if lost > 0 {
			o.log.Error("spooled lines of a log file are unreadable and lost", "lines", lost, "dir", o.dir)
		}
		switch {
		case more && (err == nil || moved > 0):
			wait = firstRetry
			if ctx.Err() != nil {
				return
			}
			continue
		case err == nil && o.drained(ctx):
			if o.linger(ctx) {
				return
			}
			continue
		}
		if !pause(ctx, o.done, wait) {
			return
		}
		wait = min(2*wait, maxRetry)
	}
}

// linger keeps an empty queue for some time, and then removes it. It returns false if the queue is
// in use again.
func (o *overflow) linger(ctx context.Context) bool {
	timer := time.NewTimer(queueLinger)
	defer timer.Stop()
	select {
	case <-timer.C:
		return o.removeQueue()
	case <-o.wake:
		return false
	case <-ctx.Done():
	case <-o.done:
	}
	return true
}

// drained makes new lines go to the file if the queue is empty, and reports whether it did.
func (o *overflow) drained(ctx context.Context) bool {
	err := o.mark(ctx, func(ctx context.Context, b []byte) (int, error) {
		n, err := o.file.TryAppend(ctx, b)
		o.countStored(b[:n], 0)
		return n, err
	})
	if err != nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if lines, _, _ := o.queue.Lines(time.Now()); lines > 0 || o.adding > 0 {
		return false
	}
	if o.queued {
		o.log.Info("the log file accepts lines again; the spooled lines are written")
	}
	o.queued, o.fault = false, nil
	return true
}

// removeQueue removes an unused queue, and reports whether it did.
func (o *overflow) removeQueue() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queued || o.adding > 0 {
		return false
	}
	if err := o.queue.Remove(); err != nil {
		o.log.Warn("cannot remove the empty spool of a log file", "dir", o.dir, "error", err)
	}
	o.queue = nil
	return true
}
