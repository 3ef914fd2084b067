package rotation

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The file on disk can differ from the written data: a write fails halfway, a process dies within a
// line, or another process truncates, replaces, or extends the file. The functions below detect and
// repair this before each write.

// openActive opens or creates the file at the path, and makes it the active file. If the directory
// was removed, openActive opens the one that is at its path now, or creates it.
func (f *File) openActive() error {
	file, st, err := f.dir.openActive()
	if isGone(err) && f.f != nil {
		return f.moveTo(f.dir.reopen())
	}
	if err != nil {
		return err
	}
	f.setActive(file, &st)
	return nil
}

func (d *directory) openActive() (*os.File, unix.Stat_t, error) {
	return d.open(d.names.base, unix.O_RDWR|unix.O_APPEND|unix.O_CREAT)
}

// setActive replaces the active file.
func (f *File) setActive(file *os.File, st *unix.Stat_t) {
	if f.f != nil {
		if f.torn {
			_ = unix.Ftruncate(int(f.f.Fd()), f.size) // a failed disk keeps the partial line
		}
		if f.opts.Sync == SyncEachBatch {
			f.syncLocked()
		}
		f.retire(retired{f.f, f.opts.Sync == SyncEachSecond})
	}
	f.f, f.dev, f.ino = file, uint64(st.Dev), st.Ino
	f.size, f.torn, f.needLF, f.dirDirty = st.Size, false, false, true
	f.checkTail()
	f.count.size.Store(f.size)
}

// checkTail records whether the active file ends within a line.
func (f *File) checkTail() {
	if f.size == 0 {
		f.needLF = false
		return
	}
	var b [1]byte
	if _, err := f.f.ReadAt(b[:], f.size-1); err == nil || errors.Is(err, io.EOF) {
		if f.needLF = b[0] != '\n'; f.needLF {
			f.count.tornTails.Add(1)
		}
	}
}

// repair ensures that the active file ends with a whole line: it removes the rest of a failed
// write, and detects changes by other processes.
func (f *File) repair() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.f.Fd()), &st); err != nil {
		return f.dir.failed("stat", f.dir.names.base, err)
	}
	switch {
	case st.Nlink == 0:
		f.count.outside.Add(1)
		if err := f.openActive(); err != nil {
			f.faults.set(faultOutside, err)
			return err
		}
		f.faults.set(faultOutside, nil)
	case st.Size < f.size:
		f.count.outside.Add(1)
		f.size, f.torn = st.Size, false
		f.checkTail()
	case st.Size > f.size && f.torn:
		if err := unix.Ftruncate(int(f.f.Fd()), f.size); err != nil {
			return f.dir.failed("remove a partial line from", f.dir.names.base, err)
		}
		f.torn = false
	case st.Size == f.size:
		f.torn = false
	default:
		f.count.outside.Add(1)
		f.size = st.Size
		f.checkTail()
	}
	f.count.size.Store(f.size)
	if !f.needLF {
		return nil
	}
	if _, err := f.f.Write([]byte{'\n'}); err != nil {
		return err
	}
	f.needLF, f.dirty = false, true
	f.size++
	f.count.bytes.Add(1)
	return nil
}
