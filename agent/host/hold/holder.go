package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Options are the options of [Open].
type Options struct {
	// Dir is the agent's run directory. It contains the holder process's socket.
	Dir string
	// Command is the command line up to --dir that starts the holder process: the path of this
	// program, "hold", "--dir". It is used if systemd does not accept a file and no process
	// serves Dir. If it is empty, the process must be started separately.
	Command []string
	Systemd *Systemd     // from [FromEnvironment]; nil without systemd
	Log     *slog.Logger // nil discards
}

// Holder keeps files open by name. It is safe for concurrent use.
type Holder struct {
	log     *slog.Logger
	systemd *Systemd
	process *process

	change sync.Mutex      // serializes requests to systemd and the process; taken before mu; guards used
	used   map[string]bool // names that this process has held or taken

	mu   sync.Mutex // held only briefly
	held map[string]location
	full bool // systemd rejected a file, and this was logged
}

// location says where a file is held.
type location int

const (
	inSystemd location = iota + 1
	inProcess
)

// Open returns a Holder. It sends no requests yet.
func Open(o Options) *Holder {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := &Holder{log: o.Log, systemd: o.Systemd, held: map[string]location{}, used: map[string]bool{},
		process: newProcess(o.Dir, o.Command)}
	if k.systemd != nil && k.systemd.has(probeName) { // an earlier agent was killed during a probe
		_ = k.systemd.remove(probeName)
	}
	return k
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
// replaces a different file that was held under the same name.
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
	by, err := k.hold(name, f)
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.held, name); err == nil {
		k.held[name] = by
	}
	return err
}

func (k *Holder) hold(name string, f *os.File) (location, error) {
	if k.systemd == nil {
		return inProcess, k.process.hold(name, f)
	}
	err := k.systemd.hold(fdName(name), f)
	if err == nil {
		return inSystemd, k.process.release(name) // the process may hold it for an agent that ran without systemd
	}
	k.mu.Lock()
	logged := k.full
	k.full = true
	k.mu.Unlock()
	other := k.process.hold(name, f)
	if !logged && other == nil {
		k.log.Warn("systemd does not hold a file during restarts of the agent; nearside hold does, "+
			"which a unit without KillMode=process ends with the agent. "+
			"Set FileDescriptorStoreMax= in the unit to more than the number of FIFOs and listening sockets", "name", name,
			"error", err)
	}
	if other != nil {
		return 0, errors.Join(err, other)
	}
	return inProcess, nil
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
	if k.systemd != nil {
		if f := k.systemd.take(fdName(name)); f != nil {
			return f, true
		}
	}
	f := k.process.take(name)
	return f, f != nil
}

// Names returns the sorted names with a prefix that this process and earlier ones have held. It
// does not return names that systemd only knows as a hash.
func (k *Holder) Names(prefix string) []string {
	k.change.Lock()
	defer k.change.Unlock()
	found := map[string]bool{}
	if k.systemd != nil {
		for name := range k.systemd.found {
			found[plainName(name)] = true
		}
	}
	list, _ := k.process.names()
	for _, name := range list {
		found[name] = true
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if name != "" && strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out
}

// Holds asks the holder whether it still has the file of a name.
func (k *Holder) Holds(name string) bool {
	k.mu.Lock()
	by := k.held[name]
	k.mu.Unlock()
	switch by {
	case inSystemd:
		return true
	case inProcess:
		k.change.Lock()
		defer k.change.Unlock()
		f := k.process.take(name)
		if f != nil {
			f.Close()
		}
		return f != nil
	}
	return false
}

// Release stops holding a file. It does nothing if there is none.
func (k *Holder) Release(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	k.change.Lock()
	defer k.change.Unlock()
	k.mu.Lock()
	by := k.held[name]
	delete(k.held, name)
	k.mu.Unlock()
	var err error
	if k.systemd != nil && (by == inSystemd || k.systemd.has(fdName(name))) {
		err = k.systemd.remove(fdName(name))
	}
	if by != inSystemd {
		err = errors.Join(err, k.process.release(name))
	}
	return err
}

// ReleaseRemoved releases FIFOs of earlier agents that were deleted from their directory. Their
// writers then get an error instead of blocking forever.
func (k *Holder) ReleaseRemoved() error {
	k.change.Lock()
	defer k.change.Unlock()
	var errs []error
	if k.systemd != nil {
		for name, files := range k.systemd.found {
			if anyRemoved(files) {
				errs = append(errs, k.systemd.remove(name))
			}
		}
	}
	names, err := k.process.names()
	for _, name := range names {
		f := k.process.take(name)
		if f == nil {
			continue
		}
		if anyRemoved([]*os.File{f}) {
			err = errors.Join(err, k.process.release(name))
		}
		f.Close()
	}
	return errors.Join(append(errs, err)...)
}

// ReleaseUnused releases files of earlier agents whose names have a prefix and were neither held
// nor taken by this process. Those are sockets of addresses that are no longer in the config.
func (k *Holder) ReleaseUnused(prefix string) error {
	k.change.Lock()
	defer k.change.Unlock()
	used := map[string]bool{}
	for name := range k.used {
		used[fdName(name)] = true
	}
	var errs []error
	if k.systemd != nil {
		for name := range k.systemd.found {
			if strings.HasPrefix(name, escaped(prefix)) && !used[name] {
				errs = append(errs, k.systemd.remove(name))
			}
		}
	}
	names, err := k.process.names()
	for _, name := range names {
		if strings.HasPrefix(name, prefix) && !k.used[name] {
			err = errors.Join(err, k.process.release(name))
		}
	}
	return errors.Join(append(errs, err)...)
}

func anyRemoved(files []*os.File) bool {
	for _, f := range files {
		var st unix.Stat_t
		if err := control(f, func(fd int) error { return unix.Fstat(fd, &st) }); err == nil &&
			st.Mode&unix.S_IFMT == unix.S_IFIFO && st.Nlink == 0 {
			return true
		}
	}
	return false
}

// By returns what holds a file, for the status; "" if nothing does.
func (k *Holder) By(name string) string {
	k.mu.Lock()
	by, full := k.held[name], k.full
	k.mu.Unlock()
	switch {
	case by == inSystemd:
		return "systemd"
	case by == inProcess && full:
		return k.process.String() + ", since systemd takes no more"
	case by == inProcess:
		return k.process.String()
	}
	return ""
}

// Run restarts the holder process when it ends while it should hold files. It returns when ctx
// ends.
func (k *Holder) Run(ctx context.Context) error {
	k.process.run(ctx)
	k.change.Lock()
	defer k.change.Unlock()
	if k.systemd != nil {
		k.systemd.close()
	}
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
