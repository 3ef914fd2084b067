package rotation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gopkg.in/natefinch/lumberjack.v2"
)

// checkEvery is how often a [Plain] reopens its path, to remove old backups, which lumberjack
// checks only when it opens a file, and to detect files that were renamed or removed.
const checkEvery = time.Minute

// Plain appends to a rotated file without the guarantees of [File]: lumberjack writes, renames, and
// removes. A crash or a full disk may truncate a line, and cleanup errors are not reported. It is
// for logs that may lose lines, such as query logs and the agent's own log.
//
// lumberjack rotates only at whole megabytes, treats 0 as 100, and overwrites a backup made in the
// same millisecond. So Plain counts bytes, is the only caller of Rotate, and waits for the next
// millisecond. A Plain is safe for concurrent use. Its Logger has a goroutine that never ends, so
// open few of them.
type Plain struct {
	dir   *directory
	limit int64 // bytes of the active file; 0: none

	mu     sync.Mutex
	log    *lumberjack.Logger
	size   int64     // of the active file
	last   time.Time // time of the last rotation
	closed bool
	err    error // result of the last write or check
}

// OpenPlain opens or creates a file. It uses the path, limits, and group of the options. The
// directory and the file must belong to this user or root and must not be links, as for [Open].
// Only one process at a time can use a file.
func OpenPlain(o Options) (*Plain, error) {
	o, gid, err := Options{Path: o.Path, Limits: o.Limits, Group: o.Group, maxBytes: o.maxBytes}.normalized()
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(o.Path, gid)
	if err != nil {
		return nil, err
	}
	p := &Plain{dir: dir, limit: o.maxBytes, log: &lumberjack.Logger{Filename: o.Path,
		MaxSize: maxMB, MaxBackups: o.Limits.MaxFiles, MaxAge: o.Limits.MaxFileAge}}
	if err := p.check(); err != nil {
		dir.close()
		return nil, err
	}
	return p, nil
}

// Write appends lines, to a new file if they would exceed the size limit. It returns the number of
// bytes written.
func (p *Plain) Write(lines []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, ErrClosed
	}
	if p.limit > 0 && p.size > 0 && p.size+int64(len(lines)) > p.limit {
		if p.err = p.rotate(); p.err != nil {
			return 0, p.err
		}
	}
	n, err := p.log.Write(lines)
	p.size += int64(n)
	p.err = err
	return n, err
}

// rotate renames the active file and creates a new one.
func (p *Plain) rotate() error {
	if wait := time.Until(p.last.Truncate(time.Millisecond).Add(time.Millisecond)); wait > 0 {
		<-time.After(wait) // at most a millisecond, the resolution of backup names
	}
	err := p.log.Rotate()
	p.last = time.Now() // not before the time in the name
	if err != nil {
		return fmt.Errorf("rotate %s: %w", p.log.Filename, err)
	}
	p.size = 0
	return nil
}

// check reopens the path.
func (p *Plain) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	// lumberjack follows links and does not set modes, so the file is opened here first.
	f, st, err := p.dir.open(p.dir.names.base, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT)
	if err == nil {
		err = errors.Join(f.Close(), p.log.Close())
		p.size = st.Size
	}
	if err == nil {
		_, err = p.log.Write(nil)
	}
	p.err = err
	return err
}

// Run maintains the file until ctx ends: it removes old backups, and within a minute replaces a
// file that was renamed or removed.
func (p *Plain) Run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = p.check() // reported by Health
		}
	}
}

// Health returns the error of the last write or check, or nil.
func (p *Plain) Health() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Close closes the file. Later writes return [ErrClosed].
func (p *Plain) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	err := p.log.Close()
	p.dir.close()
	return err
}
