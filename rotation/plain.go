package rotation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/nearside-mesh/nearside/rotation/dirs"
)

// checkEvery is how often a [Plain] reopens its path, to remove old backups, which lumberjack
// checks only when it opens a file.
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
	limit int64 // bytes of the active file; 0: none

	mu     sync.Mutex
	dir    *directory
	log    *lumberjack.Logger
	active *os.File  // the file that log writes, for reading
	ino    [2]uint64 // device and inode of active
	size   int64     // of the active file
	last   time.Time // time of the last rotation
	closed bool
	err    error // of the last write
	fault  error // of the last check
	future int   // backups with a time in the future
}

// OpenPlain opens or creates a file. It uses the path, limits, and group of the options. The
// directory and the file must belong to this user or root and must not be links, as for [Open].
// Only one process at a time can use a file.
func OpenPlain(o Options) (*Plain, error) {
	o, gid, err := Options{Path: o.Path, Limits: o.Limits, Group: o.Group, Roots: o.Roots,
		maxBytes: o.maxBytes}.normalized()
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(o, gid)
	if err != nil {
		return nil, err
	}
	p := &Plain{dir: dir, limit: o.maxBytes, log: &lumberjack.Logger{Filename: o.Path,
		MaxSize: maxMB, MaxBackups: o.Limits.MaxFiles, MaxAge: o.Limits.MaxFileAge}}
	if err := p.check(true); err != nil {
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
	for n > 0 && !p.named() { // its file was removed, so no reader finds the lines
		if p.err = p.recover(); p.err != nil {
			return 0, p.err
		}
		n, err = p.log.Write(lines)
	}
	p.size += int64(n)
	p.err = err
	return n, err
}

// rotate renames the active file and creates a new one.
func (p *Plain) rotate() error {
	if wait := time.Until(p.last.Truncate(time.Millisecond).Add(time.Millisecond)); wait > 0 {
		<-time.After(wait) // at most a millisecond, the resolution of backup names
	}
	if result, _ := p.dir.Compare(); result == dirs.Other { // lumberjack would create it with another mode
		return p.recover()
	}
	err := p.log.Rotate()
	p.last = time.Now() // not before the time in the name
	if err != nil {
		return fmt.Errorf("rotate %s: %w", p.log.Filename, err)
	}
	return p.follow()
}

// named reports whether the active file has a name.
func (p *Plain) named() bool {
	var st unix.Stat_t
	return p.active == nil || unix.Fstat(int(p.active.Fd()), &st) != nil || st.Nlink > 0
}

// recover opens the path again after a change of the directory or of the file.
func (p *Plain) recover() error {
	if result, err := p.dir.Compare(); result == dirs.Other {
		next, err := p.dir.reopen()
		if err != nil {
			return err
		}
		p.dir.close()
		p.dir = next
	} else if err != nil {
		return err
	}
	return p.open()
}

// open opens the path again, regardless of changes.
func (p *Plain) open() error {
	// lumberjack follows links and does not set modes, so the file is opened here first.
	f, _, err := p.dir.open(p.dir.names.base, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT)
	if err == nil {
		err = errors.Join(f.Close(), p.log.Close())
	}
	if err == nil {
		_, err = p.log.Write(nil)
	}
	if err == nil {
		err = p.follow()
	}
	return err
}

// follow opens the file that lumberjack has just opened.
func (p *Plain) follow() error {
	f, st, err := p.dir.open(p.dir.names.base, unix.O_RDONLY)
	if err != nil {
		return err
	}
	if p.active != nil {
		p.active.Close()
	}
	p.active, p.ino, p.size = f, [2]uint64{uint64(st.Dev), st.Ino}, st.Size
	return nil
}

// check opens the path again if it leads to another file, or regardless of that.
func (p *Plain) check(always bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	result, err := p.dir.Compare()
	st, gone := p.dir.stat(p.dir.names.base)
	switch {
	case result == dirs.Other || p.active != nil && (gone != nil || p.ino != [2]uint64{uint64(st.Dev), st.Ino}):
		err = p.recover()
	case err == nil && always:
		err = p.open()
	}
	if err == nil {
		err = p.dir.keepLock()
	}
	if p.fault = err; err == nil && always {
		p.err = nil
		p.removeFuture()
	}
	return err
}

// removeFuture removes backups with a time in the future that were modified before the maximum age.
// lumberjack compares only the times in names, so it would keep them until then.
func (p *Plain) removeFuture() {
	found, _, err := p.dir.scan()
	if err != nil {
		return // check reports a directory that cannot be used
	}
	now := time.Now()
	p.future = futures(found, now)
	for _, b := range surplus(found, Limits{MaxFileAge: p.log.MaxAge}, now) {
		if b.future(now) && b.plain && p.dir.remove(p.dir.names.backup(b.stamp)) == nil {
			p.future--
		}
	}
}

// Future returns the number of backups whose name has a time in the future. Their modification time
// decides when they are removed.
func (p *Plain) Future() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.future
}

// Run maintains the file until ctx ends: it removes old backups, and within a second replaces a
// file or directory that was renamed or removed.
func (p *Plain) Run(ctx context.Context) {
	tick := time.NewTimer(NextTick(checkEach))
	defer tick.Stop()
	opened := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(NextTick(checkEach))
		}
		always := time.Since(opened) >= checkEvery
		if always {
			opened = time.Now()
		}
		_ = p.check(always) // reported by Health
	}
}

// Health returns the errors of the last write and the last check, or nil.
func (p *Plain) Health() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.err, p.fault)
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
	p.active.Close()
	p.dir.close()
	return err
}
