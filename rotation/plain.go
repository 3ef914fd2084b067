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

// checkEvery is how often a [Plain] opens its path again: for the age of backups, which lumberjack
// checks only when it opens a file, and for files that others have renamed or removed.
const checkEvery = time.Minute

// Plain appends to a rotated file without the guarantees of [File]: lumberjack writes, renames, and
// removes. A crash or a full disk may cut a line, and errors of cleanup are not reported. It is for
// logs whose lines need not all arrive: of queries, and of the agent itself.
//
// Lumberjack rotates by size only to a whole number of megabytes, takes 0 for 100, and replaces a
// backup that another rotation made in the same millisecond. So Plain counts the bytes, is the only
// caller of Rotate, and waits for the next millisecond. A Plain is safe for concurrent use. Its
// Logger has a goroutine that never ends, so open few of them, for the life of the process.
type Plain struct {
	dir   *directory
	limit int64 // bytes of the active file, 0: none

	mu     sync.Mutex
	log    *lumberjack.Logger
	size   int64     // of the active file
	last   time.Time // of the last rotation
	closed bool
	err    error // of the last write or check
}

// OpenPlain opens or makes a file. Of the options it takes the path, the limits, and the group. The
// directory and the file must belong to this user or to root, and neither may be a link, as for
// [Open]. One process at a time uses a file.
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
		MaxSize: mostMB, MaxBackups: o.Limits.MaxFiles, MaxAge: o.Limits.MaxFileAge}}
	if err := p.check(); err != nil {
		dir.close()
		return nil, err
	}
	return p, nil
}

// Write appends lines, in a new file where they would make the active one larger than the limit. It
// returns how many bytes the file has taken.
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

// rotate renames the active file and begins another one.
func (p *Plain) rotate() error {
	if wait := time.Until(p.last.Truncate(time.Millisecond).Add(time.Millisecond)); wait > 0 {
		<-time.After(wait) // at most a millisecond: the name of a backup has no finer time
	}
	err := p.log.Rotate()
	p.last = time.Now() // not before the time in the name
	if err != nil {
		return fmt.Errorf("rotate %s: %w", p.log.Filename, err)
	}
	p.size = 0
	return nil
}

// check opens the path again.
func (p *Plain) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	// Lumberjack follows links and keeps modes, so the file is made before it looks.
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

// Run keeps the file until ctx ends: backups that are too old go, and a file that others have
// renamed or removed is replaced by a new one within a minute.
func (p *Plain) Run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = p.check() // Health has it
		}
	}
}

// Health returns the error of the last write or check, nil where it went well.
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
