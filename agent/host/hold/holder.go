package hold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Options are the options of [Open].
type Options struct {
	// Dir is the agent's run directory. It contains the holder process's socket.
	Dir string
	// Command is the command line up to --dir that starts the holder process: the path of this
	// program, "hold", "--dir". It is used if no process serves Dir. If it is empty, the process must
	// be started separately.
	Command []string
}

// Holder keeps files open by name. It is safe for concurrent use.
type Holder struct {
	process *process

	change sync.Mutex      // serializes requests; guards used
	used   map[string]bool // names that this process has held or taken
}

// Open returns a Holder. It sends no requests yet.
func Open(o Options) *Holder {
	return &Holder{used: map[string]bool{}, process: newProcess(o.Dir, o.Command)}
}

// maxName is the maximum length of a name in bytes.
const maxName = 4096

func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsAny(name, "\n\x00") {
		return fmt.Errorf("the name of a held file has %d bytes or contains LF or NUL; use 1 to %d bytes without them",
			len(name), maxName)
	}
	return nil
}

// Hold holds a file until Release, even after this process ends. It may be a FIFO that is open
// for reading, a listening socket, or a datagram socket. The caller may close it afterwards. Hold
// replaces a different file that was held under the same name. After an error, [Holder.Run] tries
// again. Sockets with [APIPrefix] or [InPrefix] are held only by a supervised process, now or as
// soon as one runs; see [Holder.By].
func (k *Holder) Hold(name string, f *os.File) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := control(f, holdable); err != nil {
		return err
	}
	k.change.Lock()
	defer k.change.Unlock()
	k.used[name] = true
	return k.process.hold(name, f)
}

// Take returns the file that an earlier process held under a name, and false if there is none.
// The file stays held.
func (k *Holder) Take(name string) (*os.File, bool) {
	if checkName(name) != nil {
		return nil, false
	}
	k.change.Lock()
	defer k.change.Unlock()
	k.used[name] = true
	f := k.process.take(name)
	return f, f != nil
}

// Names returns the sorted names with a prefix that this process and earlier ones have held.
func (k *Holder) Names(prefix string) (out []string) {
	k.change.Lock()
	defer k.change.Unlock()
	names, _ := k.process.names()
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out
}

// Holds asks the holder whether it still has the file of a name.
func (k *Holder) Holds(name string) bool {
	if k.process.by(name) == "" {
		return false
	}
	k.change.Lock()
	defer k.change.Unlock()
	f := k.process.take(name)
	if f != nil {
		f.Close()
	}
	return f != nil
}

// Release stops holding a file. It does nothing if there is none.
func (k *Holder) Release(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	k.change.Lock()
	defer k.change.Unlock()
	return k.process.release(name)
}

// ReleaseRemoved releases FIFOs of earlier agents that were deleted from their directory. Their
// writers then get an error instead of blocking forever.
func (k *Holder) ReleaseRemoved() error {
	k.change.Lock()
	defer k.change.Unlock()
	names, err := k.process.names()
	for _, name := range names {
		f := k.process.take(name)
		if f == nil {
			continue
		}
		if removed(f) {
			err = errors.Join(err, k.process.release(name))
		}
		f.Close()
	}
	return err
}

// ReleaseUnused releases files of earlier agents whose names have a prefix and were neither held
// nor taken by this process. Those are sockets of addresses that are no longer in the config.
func (k *Holder) ReleaseUnused(prefix string) error {
	k.change.Lock()
	defer k.change.Unlock()
	names, err := k.process.names()
	for _, name := range names {
		if strings.HasPrefix(name, prefix) && !k.used[name] {
			err = errors.Join(err, k.process.release(name))
		}
	}
	return err
}

// removed reports whether a file is a FIFO that was deleted from its directory.
func removed(f *os.File) bool {
	var st unix.Stat_t
	err := control(f, func(fd int) error { return unix.Fstat(fd, &st) })
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO && st.Nlink == 0
}

// By returns what holds a file, for the status; "" if nothing does. After [Holder.Run], it returns
// the last state.
func (k *Holder) By(name string) string { return k.process.by(name) }

// Run passes all files to the next holder process at once when the current one ends, and starts
// one if no other program does. It returns when ctx ends.
func (k *Holder) Run(ctx context.Context) error {
	k.process.run(ctx)
	return nil
}

// control calls fn with a descriptor, without making it blocking.
func control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = fn(int(fd)) })
	return errors.Join(failed, err)
}

// duplicate returns another descriptor of an open file.
func duplicate(f *os.File) (out *os.File, err error) {
	err = control(f, func(fd int) error {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			out = os.NewFile(uintptr(own), f.Name())
		}
		return err
	})
	return out, err
}

var errNotHoldable = errors.New("only FIFOs that are open for reading, listening sockets, " +
	"and datagram sockets can be held")

// holdable returns an error for descriptors that must not be held. Otherwise any local process of
// the user could have files and connections kept open.
func holdable(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
			return errNotHoldable
		}
		return nil
	case unix.S_IFSOCK:
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		listens, listenErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if err == nil && kind == unix.SOCK_DGRAM || listenErr == nil && listens == 1 {
			return nil
		}
	}
	return errNotHoldable
}
