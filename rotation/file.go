package rotation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// Errors of [File.Write].
var (
	// ErrClosed is for a file that is closed, or is closed while a writer waits.
	ErrClosed = errors.New("the file is closed")
	// ErrUnterminated is for a batch that does not end in LF. Nothing of it is written.
	ErrUnterminated = errors.New("the batch does not end in LF; add one or keep the last line back")
)

var errMinFree = errors.New("less than minFree is left on the file system")

// How long a writer waits before it tries again: the first time, and at most. Up to half of it is
// left out at random.
const (
	firstWait = 50 * time.Millisecond
	mostWait  = 2 * time.Second
	// rotateWait is the time until a rotation that failed is tried again. Meanwhile the file grows.
	rotateWait = time.Second
)

// File is the active file with its backups. Its methods may be called at the same time.
type File struct {
	opts    Options
	dir     *directory
	count   counters
	faults  faults
	turn    chan struct{} // has a token while nobody writes; taken in the order of the calls
	running chan struct{} // has a token while Run does not run
	wake    chan struct{} // says that Run has something to do
	done    chan struct{} // closed by Close
	closing sync.Once

	mu sync.Mutex // held for system calls, never while waiting for space; guards what follows
	// f is the active file, opened to append, nil once closed; size is its length up to the last whole
	// line.
	f           *os.File
	dev, ino    uint64
	size        int64
	torn        bool // bytes behind size are to be cut off
	needLF      bool // somebody's half line is at the end
	dirty       bool // written since the last sync
	room        int64
	backups     []backup // oldest first
	last        int64    // stamp of the latest backup
	dirDirty    bool
	retired     []retired
	owned       bool // Run is there to close what is retired
	rotateAfter time.Time
	loss        Loss
	lossUntil   time.Time // no write is tried before, with DropNewest
	lossWait    time.Duration
	note        func(Place) // of the writer whose turn it is; nil: none
	noting      bool        // what is written is of his batch
	before      int         // bytes of it that are stored
}

// retired is a file that is closed, after a sync if it is to be, without making a writer wait.
type retired struct {
	f    *os.File
	sync bool
}

// Open opens or makes the active file and applies the limits to the backups that are there. A last
// line that has no LF gets one; nothing is cut off. Errors name the path and what to do.
func Open(opts Options) (*File, error) {
	opts, gid, err := opts.normalized()
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(opts.Path, gid)
	if err != nil {
		return nil, err
	}
	f := &File{opts: opts, dir: dir, turn: make(chan struct{}, 1), running: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), done: make(chan struct{})}
	f.turn <- struct{}{}
	f.running <- struct{}{}
	var temps []string
	f.backups, temps, err = dir.scan()
	if err == nil {
		err = f.openActive()
	}
	if err != nil {
		dir.close()
		return nil, err
	}
	for _, name := range temps {
		if err := dir.remove(name); err != nil {
			f.count.removeErrors.Add(1)
		}
	}
	if n := len(f.backups); n > 0 {
		f.last = f.backups[n-1].stamp
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prune()
	f.repair() // a full disk is the matter of the first write
	return f, nil
}

// SetLimits gives the file other limits, which take effect at once: backups that are too many or
// too old go, and a file that is too large is rotated with the next write. Limits that are out of
// their bounds change nothing.
func (f *File) SetLimits(l Limits) error {
	if err := l.Validate(""); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return ErrClosed
	}
	f.opts.Limits, f.opts.maxBytes = l, l.maxBytes()
	f.prune()
	return nil
}

// Write stores a batch of whole lines and returns how many of its bytes are done with: stored, or
// with DropNewest dropped. The count ends at the end of a line. It waits while the disk is full or
// fails; the error is then that of ctx, or ErrClosed. The batch is not kept. It is not changed and
// may go into more than one file.
func (f *File) Write(ctx context.Context, batch []byte) (int, error) {
	n, _, err := f.Append(ctx, batch)
	return n, err
}

// Append is Write, and returns too how many lines of what is done with were dropped.
func (f *File) Append(ctx context.Context, batch []byte) (n, dropped int, err error) {
	if len(batch) == 0 {
		return 0, 0, nil
	}
	if batch[len(batch)-1] != '\n' {
		return 0, 0, ErrUnterminated
	}
	if err := f.take(ctx); err != nil {
		return 0, 0, err
	}
	defer f.giveBack()
	stored, note := 0, noteOf(ctx)
	for wait := firstWait; ; wait = min(2*wait, mostWait) {
		f.noted(note, stored)
		n, err := f.store(batch[stored:])
		stored += n
		switch {
		case err == nil:
			return stored, 0, nil
		case errors.Is(err, ErrClosed):
			return stored, 0, err
		case f.opts.OnFull == DropNewest:
			return len(batch), bytes.Count(batch[stored:], []byte{'\n'}), nil
		}
		timer := time.NewTimer(wait - rand.N(wait/2))
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-f.done:
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
		timer.Stop()
		return stored, 0, err
	}
}

// take waits for the turn to write.
func (f *File) take(ctx context.Context) error {
	select {
	case <-f.done:
		return ErrClosed
	default:
	}
	select {
	case <-f.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.done:
		return ErrClosed
	}
}

func (f *File) giveBack() { f.turn <- struct{}{} }

// store writes as much of a batch as it can, and does what OnFull says of the rest.
func (f *File) store(batch []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return 0, ErrClosed
	}
	now := f.opts.Now()
	waiting := f.opts.OnFull == DropNewest && f.loss.Lines > 0 && time.Now().Before(f.lossUntil)
	if waiting {
		f.drop(batch, now, f.loss.Cause)
		return 0, f.loss.Cause
	}
	stored := 0
	err := f.mark(now)
	if err == nil {
		f.noting = f.note != nil
		stored, err = f.append(batch)
		f.noting = false
	}
	if err == nil && f.opts.Sync == SyncEachBatch {
		f.syncLocked()
	}
	if err == nil {
		f.faults.set(faultWrite, nil)
		return stored, nil
	}
	f.count.retries.Add(1)
	f.faults.set(faultWrite, fmt.Errorf("cannot write: %w; make space or repair the file system", err))
	if f.opts.OnFull == DropNewest {
		f.lossWait = min(max(2*f.lossWait, firstWait), mostWait)
		f.lossUntil = time.Now().Add(f.lossWait)
		f.drop(batch[stored:], now, err)
	}
	return stored, err
}

// append writes lines, in as many files as it takes, and returns how many bytes are whole in them.
func (f *File) append(lines []byte) (int, error) {
	stored := 0
	for stored < len(lines) {
		if err := f.repair(); err != nil {
			return stored, err
		}
		rest := lines[stored:]
		cut, oversize := fit(rest, f.size, f.opts.maxBytes)
		if cut == 0 {
			if f.tryRotate() {
				continue
			}
			cut = len(rest) // nothing is lost: the file grows until a rotation works
		}
		if err := f.write(rest[:cut]); err != nil {
			return stored, err
		}
		stored += cut
		if oversize {
			f.count.oversize.Add(1)
		}
	}
	return stored, nil
}

// fit returns how many bytes of lines go into a file of a size: whole lines, up to the limit, where
// 0 is none. 0 says that the file is to be rotated. A line that is longer than the limit goes into
// an empty file alone.
func fit(lines []byte, size, limit int64) (n int, oversize bool) {
	if limit <= 0 || int64(len(lines)) <= limit-size {
		return len(lines), false
	}
	if left := limit - size; left > 0 {
		n = bytes.LastIndexByte(lines[:left], '\n') + 1
	}
	if n > 0 || size > 0 {
		return n, false
	}
	return bytes.IndexByte(lines, '\n') + 1, true
}

// write appends bytes to the active file, whole or not at all.
func (f *File) write(b []byte) error {
	err := f.checkRoom(int64(len(b)))
	for {
		if err == nil {
			f.tellPlace(len(b))
			_, err = f.f.Write(b)
			if err == nil {
				break
			}
			f.torn = true
			if cut := f.repair(); cut != nil {
				return errors.Join(err, cut)
			}
			f.tellPlace(0)
		}
		if !isFull(err) || !f.makeRoom() {
			return err
		}
		err = f.checkRoom(int64(len(b)))
	}
	f.size += int64(len(b))
	if f.noting {
		f.before += len(b)
	}
	f.count.size.Store(f.size)
	f.room -= int64(len(b))
	f.dirty = true
	f.count.bytes.Add(uint64(len(b)))
	return nil
}

// checkRoom keeps MinFree. The file system is asked when what was free the last time has been
// written, and by Run.
func (f *File) checkRoom(n int64) error {
	if f.opts.MinFree == 0 || f.room >= n {
		return nil
	}
	free, err := freeBytes(f.dir.fd())
	if err != nil {
		return f.dir.failed("look for free space at", ".", err)
	}
	if f.room = free - f.opts.MinFree; f.room < n {
		return fmt.Errorf("%s: %w: %d bytes are free, minFree is %d", f.dir.path, errMinFree, free, f.opts.MinFree)
	}
	// Others fill the disk too, so what is found is good for some writes only.
	f.room = min(f.room, n+roomStep)
	return nil
}

// roomStep is what is written between two looks at the free space, in bytes.
const roomStep = 1 << 20
