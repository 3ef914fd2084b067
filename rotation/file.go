package rotation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
)

// Errors of [File.Write].
var (
	// ErrClosed means that the file was closed before or during the call.
	ErrClosed = errors.New("the file is closed")
	// ErrUnterminated means that a batch does not end in LF. Nothing of it was written.
	ErrUnterminated = errors.New("the batch does not end in LF")
)

// errRemoved means that the file was removed during a write, and that another file is open now.
var errRemoved = errors.New("the file was removed during a write")

var errMinFree = errors.New("the file system has less free space than minFree")

// Minimum and maximum delay before a writer retries. It is reduced randomly by up to half.
const (
	firstWait = 50 * time.Millisecond
	maxWait   = 2 * time.Second
	// rotateWait is the delay before a failed rotation is retried. The file grows in the meantime.
	rotateWait = time.Second
)

// File is an active file and its backups. It is safe for concurrent use.
type File struct {
	opts    Options
	dir     *directory
	count   counters
	faults  faults
	turn    chan struct{} // holds a token while there is no writer; writers take it in order
	running chan struct{} // holds a token while Run is not active
	wake    chan struct{} // wakes Run
	done    chan struct{} // closed by Close
	closing sync.Once

	mu sync.Mutex // held during system calls, but not while waiting for space; guards the fields below
	// f is the active file, open for appending, or nil after Close. size is its length up to the last
	// whole line.
	f           *os.File
	dev, ino    uint64
	size        int64
	torn        bool     // bytes after size must be removed
	needLF      bool     // the file ends with a partial line of another writer
	dirty       bool     // written since the last sync
	spaceBudget int64    // bytes that may be written before the free space is checked
	backups     []backup // oldest first
	last        int64    // stamp of the latest backup
	clock       clock
	dirDirty    bool
	retired     []retired
	owned       bool // Run is active and closes retired files
	away        bool // the directory is not at its path, and cannot be opened there
	rotateAfter time.Time
	loss        Loss
	lossUntil   time.Time // with DropNewest, no write is tried before this time
	lossWait    time.Duration
	note        func(Extent) // reports extents to the current writer; nil: none
	noting      bool         // the data being written belongs to its batch
	before      int          // stored bytes of its batch
}

// retired is a file that Run closes, after a sync if requested, so that writers do not wait for it.
type retired struct {
	f    *os.File
	sync bool
}

// Open opens or creates the active file and applies the limits to existing backups. It adds an LF
// to an incomplete last line; it removes no data. Errors contain the path and a remedy.
func Open(opts Options) (*File, error) {
	opts, gid, err := opts.normalized()
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(opts, gid)
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
	_ = f.repair() // on a full disk, the first write retries it
	return f, nil
}

// SetLimits replaces the limits. Surplus backups are removed at once, and a file that is too large
// is rotated by the next write. Invalid limits change nothing.
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

// Write stores a batch of whole lines and returns how many bytes were stored or, with DropNewest,
// dropped. The number always ends at a line. Write waits while the disk is full or fails; then the
// error is that of ctx, or ErrClosed. It neither modifies nor retains the batch. The batch may be
// split between files.
func (f *File) Write(ctx context.Context, batch []byte) (int, error) {
	n, _, err := f.Append(ctx, batch)
	return n, err
}

// Append is like Write. It also returns how many of the processed lines were dropped.
func (f *File) Append(ctx context.Context, batch []byte) (n, dropped int, err error) {
	if len(batch) == 0 {
		return 0, 0, nil
	}
	if batch[len(batch)-1] != '\n' {
		return 0, 0, ErrUnterminated
	}
	if err := f.acquire(ctx); err != nil {
		return 0, 0, err
	}
	defer f.release()
	stored, note := 0, noteOf(ctx)
	for wait, last := firstWait, false; ; wait = min(2*wait, maxWait) {
		f.setNote(note, stored)
		n, err := f.store(batch[stored:])
		stored += n
		switch {
		case err == nil:
			return stored, 0, nil
		case errors.Is(err, ErrClosed):
			return stored, 0, err
		case f.opts.OnFull == DropNewest:
			return len(batch), bytes.Count(batch[stored:], []byte{'\n'}), nil
		case last:
			return stored, 0, f.stopped(ctx, err)
		}
		timer := time.NewTimer(wait - rand.N(wait/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			last = true
		case <-f.done:
			last = true
		}
		timer.Stop()
	}
}

// stopped returns the error of a write that failed once more after it was stopped.
func (f *File) stopped(ctx context.Context, err error) error {
	select {
	case <-f.done:
		return fmt.Errorf("%w: %w", ErrClosed, err)
	default:
		return &stoppedError{cause: context.Cause(ctx), err: err}
	}
}

// remedy returns what to do about an error of a write.
func remedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "restore the directory of the file"
	case errors.Is(err, fs.ErrPermission):
		return "let the user of the agent write there"
	}
	return "free disk space or repair the file system"
}

// stoppedError is the error of a write that was stopped while it was repeated. Its text is that of
// the error of the write.
type stoppedError struct{ cause, err error }

func (e *stoppedError) Error() string { return e.err.Error() }

func (e *stoppedError) Unwrap() []error { return []error{e.cause, e.err} }

// acquire waits for the turn to write.
func (f *File) acquire(ctx context.Context) error {
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

func (f *File) release() { f.turn <- struct{}{} }

// store writes as much of a batch as it can, and applies OnFull to the rest.
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
	stored, err := f.storeNow(batch, now)
	if err != nil && f.opts.OnFull == DropNewest {
		f.lossWait = min(max(2*f.lossWait, firstWait), maxWait)
		f.lossUntil = time.Now().Add(f.lossWait)
		f.drop(batch[stored:], now, err)
	}
	return stored, err
}

// append writes lines to as many files as necessary, and returns how many bytes were stored as
// whole lines.
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
			cut = len(rest) // no line is lost: the file grows until a rotation succeeds
		}
		if err := f.write(rest[:cut]); errors.Is(err, errRemoved) {
			f.count.rescued.Add(uint64(bytes.Count(rest[:cut], []byte{'\n'}))) // #nosec G115 -- a count
			continue
		} else if err != nil {
			return stored, err
		}
		stored += cut
		if oversize {
			f.count.oversize.Add(1)
		}
	}
	return stored, nil
}

// fit returns how many bytes of whole lines fit into a file of a given size; limit 0 means no
// limit. It returns 0 if the file must be rotated first. A line longer than the limit gets an empty
// file.
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

// write appends bytes to the active file, completely or not at all.
func (f *File) write(b []byte) error {
	err := f.checkSpace(int64(len(b)))
	for {
		if err == nil {
			f.reportExtent(len(b))
			_, err = f.f.Write(b)
			if err == nil && f.isRemoved() {
				err = errRemoved
			}
			if err == nil {
				break
			}
			f.torn = true
			if cut := f.repair(); cut != nil {
				return errors.Join(causeOf(err), cut)
			}
			f.reportExtent(0)
		}
		if !isFull(err) || !f.freeSpace() {
			return err
		}
		err = f.checkSpace(int64(len(b)))
	}
	f.size += int64(len(b))
	if f.noting {
		f.before += len(b)
	}
	f.count.size.Store(f.size)
	f.spaceBudget -= int64(len(b))
	f.dirty = true
	f.count.bytes.Add(uint64(len(b)))
	return nil
}

// causeOf returns the error that a write reports if no file can be opened.
func causeOf(err error) error {
	if errors.Is(err, errRemoved) {
		return nil
	}
	return err
}

// checkSpace enforces MinFree. It queries the file system when the budget is used up; Run resets
// the budget.
func (f *File) checkSpace(n int64) error {
	if f.opts.MinFree == 0 || f.spaceBudget >= n {
		return nil
	}
	free, err := freeBytes(f.dir.fd())
	if err != nil {
		return f.dir.failed("get the free space of", ".", err)
	}
	if f.spaceBudget = free - f.opts.MinFree; f.spaceBudget < n {
		return fmt.Errorf("%s: %w: %d bytes are free, minFree is %d", f.dir.Path(), errMinFree, free, f.opts.MinFree)
	}
	// Other processes use the disk too, so the result is valid only for some writes.
	f.spaceBudget = min(f.spaceBudget, n+budgetStep)
	return nil
}

// budgetStep is the number of bytes written between two checks of the free space.
const budgetStep = 1 << 20
