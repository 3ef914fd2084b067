package rotation

import (
	"bytes"
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// Place is where a part of a batch goes.
type Place struct {
	Dev, Ino uint64 // of the file
	Offset   int64
	Length   int // bytes of the batch that are about to be written there; 0: that has failed
	Before   int // bytes of the batch before these, which are stored
}

type noteKey struct{}

// WithNote has note called with the place of each write of [File.Append], before it. Whoever keeps
// what he hands over until it is stored, and outlives a kill, can ask [File.Recover] afterwards how
// much of it is.
func WithNote(ctx context.Context, note func(Place)) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

func noteOf(ctx context.Context) func(Place) {
	note, _ := ctx.Value(noteKey{}).(func(Place))
	return note
}

// noted sets who is told of the writes of a batch, of which some bytes are stored.
func (f *File) noted(note func(Place), stored int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note, f.before = note, stored
}

// tellPlace tells the writer where the next bytes of his batch go; 0: they could not be written.
func (f *File) tellPlace(length int) {
	if f.noting {
		f.note(Place{Dev: f.dev, Ino: f.ino, Offset: f.size, Length: length, Before: f.before})
	}
}

// maxPlace bounds the Length that Recover believes.
const maxPlace = 4 << 20

// newestBackups is how many backups Recover looks for a place in: the file may have been rotated
// since.
const newestBackups = 4

// Recover says how many bytes at the front of what a sender still has are in the file already,
// since the last process was killed after it had noted a place and before the sender knew: whole
// lines. front begins with the batch that was being written, or, where the sender had begun to give
// up what is stored, within it. Half a line that the kill has left at the end of the file is cut
// off. Only bytes that are the same count, so an old place does no harm; where there are none at
// the place, that before it says more.
func (f *File) Recover(p Place, front []byte) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil || p.Offset < 0 || p.Length < 0 || p.Length > maxPlace || p.Before < 0 || p.Before > maxPlace {
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
	done, torn := recovered(stored, p, front)
	if end := p.Offset + int64(done-p.Before); torn && active && f.size == p.Offset+int64(n) {
		if err := unix.Ftruncate(int(f.f.Fd()), end); err == nil {
			f.size, f.needLF, f.torn = end, false, false
			f.count.size.Store(f.size)
		}
	}
	return done
}

// backupOf opens the backup that a place is in; nil where there is none.
func (f *File) backupOf(p Place) *os.File {
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

// recovered compares what a file has at a place, and at most one byte behind it, with the front of
// a batch. It returns how much of the front is stored, as whole lines, and whether the file goes on
// with a half line.
func recovered(stored []byte, p Place, front []byte) (done int, torn bool) {
	part := stored[:min(len(stored), p.Length)]
	rest := front[min(p.Before, len(front)):]
	if n := commonPrefix(part, rest); n > 0 &&
		(n == len(part) || n == len(rest) || n == len(stored)-1 && stored[n] == '\n') {
		// The front begins where the batch does. A half line may have got its LF since.
		if len(part) == p.Length && n >= min(len(part), len(rest)) {
			return min(p.Before+p.Length, len(front)), false
		}
		whole := bytes.LastIndexByte(part[:n], '\n') + 1
		return p.Before + whole, whole < len(stored)
	}
	if len(part) < p.Length {
		return 0, false // nothing is given up before all is stored
	}
	for gone := 1; gone < p.Before+p.Length; gone++ { // of the batch, which the sender has given up
		left := part
		tail := front
		if gone <= p.Before {
			tail = front[min(p.Before-gone, len(front)):]
		} else {
			left = part[gone-p.Before:]
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
