package fifo

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// note records, in a file next to a FIFO, the range of the log file to which the front of the FIFO
// is being written. After a process was killed, the next one uses it to detect which lines are
// already in the file. It is not synced, because the FIFO does not survive a power failure either.
type note struct {
	f     *os.File
	fifo  [2]uint64 // device and inode of the FIFO
	last  rotation.Extent
	dirty bool
}

const (
	noteSuffix = ".note"
	noteMagic  = 0x6e6f74653031 // 0 when cleared
	noteSize   = 8 * (3 + 2*5)
)

// openNote opens or creates the note of a FIFO.
func openNote(dir int, name string, f *fifo) (*note, error) {
	fd, err := unix.Openat(dir, hidden(name, noteSuffix),
		unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", hidden(name, noteSuffix), err)
	}
	return &note{f: os.NewFile(uintptr(fd), name+noteSuffix), fifo: [2]uint64{f.dev, f.ino}}, nil
}

// set implements [rotation.WithNote]. It ignores write errors: without a note, a kill may duplicate
// lines, which is no reason to stop.
func (n *note) set(p rotation.Extent) {
	before := n.last
	if !n.dirty || before.Before+before.Length != p.Before {
		before = rotation.Extent{}
	}
	n.dirty, n.last = true, p
	b := encodeNote(n.fifo, p, before)
	_, _ = n.f.WriteAt(b[:], 0)
}

// clear records that nothing is being written.
func (n *note) clear() {
	if n.dirty {
		n.dirty = false
		_, _ = n.f.WriteAt(make([]byte, noteSize), 0)
	}
}

// read returns the extents noted by an earlier process: the last one, and the one before if the
// batch spans two files.
func (n *note) read() []rotation.Extent {
	b := make([]byte, noteSize)
	if _, err := n.f.ReadAt(b, 0); err != nil {
		return nil
	}
	extents := decodeNote(n.fifo, b)
	n.dirty = n.dirty || extents != nil
	return extents
}

func encodeNote(fifo [2]uint64, extents ...rotation.Extent) (b [noteSize]byte) {
	out := binary.NativeEndian.AppendUint64(b[:0], noteMagic)
	values := fifo[:]
	for _, p := range extents {
		// #nosec G115 -- none is negative
		values = append(values, p.Dev, p.Ino, uint64(p.Offset), uint64(p.Length), uint64(p.Before))
	}
	for _, v := range values {
		out = binary.NativeEndian.AppendUint64(out, v)
	}
	return b
}

func decodeNote(fifo [2]uint64, b []byte) (out []rotation.Extent) {
	if len(b) != noteSize {
		return nil
	}
	v := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	if v(0) != noteMagic || v(1) != fifo[0] || v(2) != fifo[1] {
		return nil
	}
	for i := 3; i < 13; i += 5 {
		if v(i+2) > 1<<62 || v(i+3) > accesslog.FlowBuffer || v(i+4) > accesslog.FlowBuffer {
			return nil
		}
		// #nosec G115 -- bounded above
		out = append(out,
			rotation.Extent{Dev: v(i), Ino: v(i + 1), Offset: int64(v(i + 2)), Length: int(v(i + 3)), Before: int(v(i + 4))})
	}
	return out
}

func (n *note) close() {
	if n != nil {
		n.f.Close()
	}
}

// recover removes lines from the FIFO that are already in the destination, because a process was
// killed between the write and the removal. Only the first call has an effect.
func (f *fifo) recover(to accesslog.Destination) error {
	if f.note == nil || f.recovered || to == nil {
		return nil
	}
	f.recovered = true
	extents := f.note.read()
	file, ok := to.(interface {
		Recover(p rotation.Extent, front []byte) int
	})
	if len(extents) == 0 || !ok {
		f.note.clear()
		return nil
	}
	front := make([]byte, accesslog.FlowBuffer)
	n, err := f.copies.peek(f.fd, front)
	if err != nil {
		return err
	}
	for _, p := range extents { // the last range may not be written yet
		if stored := file.Recover(p, front[:n]); stored > 0 {
			err = f.take(stored)
			break
		}
	}
	f.note.clear()
	return err
}
