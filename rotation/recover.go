package rotation

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/rotation/dirs"
)

// The directory of the file can be removed, moved, hidden by a mount, or made writable for others
// while the file is open. The functions below open the directory that is at the path instead.

// checkDirectory compares the directory at the path with the open one, and reports whether the
// active file is in another directory now. f.mu is held.
func (f *File) checkDirectory() (moved bool) {
	result, err := f.dir.Compare()
	switch {
	case result == dirs.Other:
		if err = f.moveTo(f.dir.reopen()); err != nil {
			err = fmt.Errorf("%s was removed or replaced, and cannot be opened again: %w", f.dir.Path(), err)
			f.faults.set(faultOutside, nil)
		} else {
			moved = true
		}
	case result == dirs.Restored:
		f.count.recovered.Add(1)
	}
	if err == nil {
		err = f.dir.keepLock()
	}
	f.away = result == dirs.Other && !moved
	f.faults.set(faultDirectory, err)
	return moved
}

// moveTo continues in another directory. On an error, it changes nothing.
func (f *File) moveTo(next *directory, err error) error {
	if err != nil {
		return err
	}
	backups, _, err := next.scan()
	if err != nil {
		next.close()
		return err
	}
	file, st, err := next.openActive()
	if err != nil {
		next.close()
		return err
	}
	f.dir.close()
	f.dir = next
	f.setActive(file, &st)
	f.backups = backups
	if n := len(backups); n > 0 {
		f.last = max(f.last, backups[n-1].stamp)
	}
	f.count.recovered.Add(1)
	f.lossUntil = time.Time{}
	f.prune()
	return nil
}

// isRemoved reports whether the active file has no name any more, so that no reader finds its
// lines.
func (f *File) isRemoved() bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.f.Fd()), &st) == nil && st.Nlink == 0
}
