package disktest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// operation decodes a system call, and returns false if it does not change the directory.
func (d *Disk) operation(n *notification) (o Operation, ok bool) {
	a := n.args
	switch uint64(n.nr) {
	case unix.SYS_PWRITE64, unix.SYS_WRITE:
		if o.Path, ok = d.ofDescriptor(n, a[0]); ok {
			o.Data = make([]byte, a[2])
			o.Offset = int64(a[3])
			if n.nr == unix.SYS_WRITE {
				o.Offset = d.position(n, a[0])
			}
			d.read(n, o.Data, a[1])
		}
		return o, ok
	case unix.SYS_FTRUNCATE:
		o = Operation{Kind: Resize, Offset: int64(a[1])}
		o.Path, ok = d.ofDescriptor(n, a[0])
	case unix.SYS_TRUNCATE:
		o = Operation{Kind: Resize, Offset: int64(a[1])}
		o.Path, ok = d.ofName(n, atCWD, a[0])
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		o.Kind = Sync
		if o.Path, ok = d.ofDescriptor(n, a[0]); o.Path == "." {
			o.Kind = SyncDir
		}
	case unix.SYS_OPENAT:
		if a[2]&(unix.O_CREAT|unix.O_TRUNC) == 0 {
			return o, false
		}
		o.Kind, o.Empty = Create, a[2]&unix.O_TRUNC != 0
		o.Path, ok = d.ofName(n, a[0], a[1])
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		o.Kind = Rename
		if n.nr == unix.SYS_LINKAT {
			o.Kind = Link
		}
		var from, to bool
		o.Path, from = d.ofName(n, a[0], a[1])
		o.To, to = d.ofName(n, a[2], a[3])
		if ok = from && to; from != to {
			d.fail("%s %q to %q crosses the directory", o.Kind, o.Path, o.To)
		}
	case unix.SYS_UNLINKAT:
		o.Kind = Remove
		o.Path, ok = d.ofName(n, a[0], a[1])
	}
	return o, ok
}

// atCWD is unix.AT_FDCWD as an argument: relative names are in the working directory.
const atCWD = uint64(0xffffffff_ffffff9c)

// ofDescriptor returns the name of an open file in the directory; "." is the directory.
func (d *Disk) ofDescriptor(n *notification, fd uint64) (string, bool) {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(fd)))
	if err != nil {
		return "", false
	}
	return d.inside(target)
}

// ofName returns the name of a path argument in the directory.
func (d *Disk) ofName(n *notification, dirfd, address uint64) (string, bool) {
	b := make([]byte, unix.PathMax)
	d.read(n, b, address)
	end := bytes.IndexByte(b, 0)
	if end < 0 {
		return "", false
	}
	name := string(b[:end])
	if !filepath.IsAbs(name) {
		at := fmt.Sprintf("/proc/%d/cwd", n.pid)
		if int32(dirfd) != unix.AT_FDCWD {
			at = fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(dirfd))
		}
		base, err := os.Readlink(at)
		if err != nil {
			return "", false
		}
		name = filepath.Join(base, name)
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(name)); err == nil {
		name = filepath.Join(dir, filepath.Base(name))
	}
	return d.inside(name)
}

func (d *Disk) inside(path string) (string, bool) {
	name, err := filepath.Rel(d.dir, path)
	if err != nil || name == ".." || strings.HasPrefix(name, "../") {
		return "", false
	}
	return name, true
}

// position returns the offset of the next write to an open file.
func (d *Disk) position(n *notification, fd uint64) (offset int64) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", n.pid, int32(fd)))
	if _, scanErr := fmt.Sscanf(string(info), "pos:\t%d", &offset); err != nil || scanErr != nil {
		d.fail("position of a file: %v, %v", err, scanErr)
	}
	return offset
}

// read reads memory of the recorded thread, at most up to the end of the mapping.
func (d *Disk) read(n *notification, b []byte, address uint64) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.pid))
	if err != nil {
		d.fail("memory of a thread: %v", err)
		return
	}
	defer f.Close()
	if got, err := f.ReadAt(b, int64(address)); err != nil && err != io.EOF && got == 0 {
		d.fail("memory of a thread: %v", err)
	}
}
