package rotation

import (
	"bytes"
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// Extent is the range of a file that part of a batch is written to.
type Extent struct {
	Dev, Ino uint64 // identify the file
	Offset   int64
	Length   int // bytes of the batch to be written there; 0: the write failed
	Before   int // stored bytes of the batch before these
}

type noteKey struct{}

// WithNote makes [File.Append] call note with the extent of each write, before the write. A sender
// that retains a batch until it is stored can record the extents, and after a kill use
// [File.Recover] to find out how much is stored.
func WithNote(ctx context.Context, note func(Extent)) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

func noteOf(ctx context.Context) func(Extent) {
	note, _ := ctx.Value(noteKey{}).(func(Extent))
	return note
}

// NoteAfter returns a context for the rest of a batch: n is added to Before of each extent, because
// that many bytes of the batch are stored already.
func NoteAfter(ctx context.Context, n int) context.Context {
	note := noteOf(ctx)
	if note == nil || n == 0 {
		return ctx
	}
	return WithNote(ctx, func(p Extent) {
		p.Before += n
		note(p)
	})
}

// Note reports an extent to the callback of [WithNote], if there is one. It is for other
// destinations whose data can be recovered with [Recovered].
func Note(ctx context.Context, p Extent) {
	if note := noteOf(ctx); note != nil {
		note(p)
	}
}

// setNote sets the callback of the current writer, and the number of its bytes already stored.
func (f *File) setNote(note func(Extent), stored int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note, f.before = note, stored
}

// reportExtent reports the extent of the next write to the writer. 0 means that the write failed.
func (f *File) reportExtent(length int) {
	if f.noting {
		f.note(Extent{Dev: f.dev, Ino: f.ino, Offset: f.size, Length: length, Before: f.before})
	}
}

// maxExtent is the largest Length that Recover accepts.
const maxExtent = 4 << 20

// newestBackups is the number of backups that Recover searches, because the file may have been
// rotated.
const newestBackups = 4

// Recover returns how many bytes of front are already stored as whole lines in extent p, after a
// process was killed between reporting p and learning the result. front is the data that the sender
// still has: it begins with the batch, or within it if the sender had started to discard stored
// data. Recover removes a partial line that the kill left at the end of the file. Only equal bytes
// count, so an outdated extent has no effect. If Recover returns 0 for the last extent, try the one
// before.
func (f *File) Recover(p Extent, front []byte) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil || p.Offset < 0 || p.Length < 0 || p.Length > maxExtent || p.Before < 0 || p.Before > maxExtent {
		return 0
	}
	file, active := f.f, true
	if p.Dev != f.dev || p.Ino != f.ino {
		active = false
		if file = f.backupOf(p); file == nil {
			return 0
		}
		defer file.Close()
	}
	stored := make([]byte, p.Length+1)
	n, _ := file.ReadAt(stored, p.Offset)
	stored = stored[:n]
	done, torn := Recovered(stored, p, front)
	if end := p.Offset + int64(done-p.Before); torn && active && f.size == p.Offset+int64(n) {
		if err := unix.Ftruncate(int(f.f.Fd()), end); err == nil {
			f.size, f.needLF, f.torn = end, false, false
			f.count.size.Store(f.size)
		}
	}
	return done
}

// backupOf opens the backup that contains an extent, or returns nil.
func (f *File) backupOf(p Extent) *os.File {
	for i := len(f.backups) - 1; i >= 0 && i >= len(f.backups)-newestBackups; i-- {
		if !f.backups[i].plain {
			continue
		}
		file, st, err := f.dir.open(f.dir.names.backup(f.backups[i].stamp), unix.O_RDONLY)
		if err != nil {
			continue
		}
		if uint64(st.Dev) == p.Dev && st.Ino == p.Ino {
			return file
		}
		file.Close()
	}
	return nil
}

// Recovered compares the data of an extent, and at most one byte after it, with the front of a
// batch. It returns how many bytes of whole lines are stored, and whether a partial line follows
// them in the file.
func Recovered(stored []byte, p Extent, front []byte) (done int, torn bool) {
	data := stored[:min(len(stored), p.Length)]
	rest := front[min(p.Before, len(front)):]
	if n := commonPrefix(data, rest); n > 0 &&
		(n == len(data) || n == len(rest) || n == len(stored)-1 && stored[n] == '\n') {
		// front begins with the batch. A partial line may have got an LF since.
		if len(data) == p.Length && n >= min(len(data), len(rest)) {
			return min(p.Before+p.Length, len(front)), false
		}
		whole := bytes.LastIndexByte(data[:n], '\n') + 1
		return p.Before + whole, whole < len(stored)
	}
	if len(data) < p.Length {
		return 0, false // a sender discards nothing before all is stored
	}
	for gone := 1; gone < p.Before+p.Length; gone++ { // number of bytes of the batch that the sender has discarded
		left := data
		tail := front
		if gone <= p.Before {
			tail = front[min(p.Before-gone, len(front)):]
		} else {
			left = data[gone-p.Before:]
		}
		if n := min(len(left), len(tail)); n > 0 && bytes.Equal(left[:n], tail[:n]) {
			return min(p.Before+p.Length-gone, len(front)), false
		}
	}
	return 0, false
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
