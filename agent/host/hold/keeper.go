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

// Options are those of [Open].
type Options struct {
	// Dir is the run directory of the agent, where the socket of the process is.
	Dir string
	// Command, with its arguments up to --dir, is what is started where systemd does not take a file
	// and no process serves Dir: the path of this program, "hold", "--dir". Empty: nothing is started,
	// and somebody else has to run it.
	Command []string
	Systemd *Systemd     // of [FromEnvironment]; nil: there is none
	Log     *slog.Logger // nil: nothing is logged
}

// Keeper keeps files by their names. Its methods may be called at the same time.
type Keeper struct {
	log     *slog.Logger
	systemd *Systemd
	process *process

	change sync.Mutex      // held while systemd or the process is asked; taken before mu; guards used
	used   map[string]bool // names that this process has kept or taken

	mu   sync.Mutex // held for moments
	kept map[string]place
	full bool // systemd has refused one, which was logged
}

// place says who holds a file.
type place int

const (
	inSystemd place = iota + 1
	inProcess
)

// Open returns a keeper. Nobody is asked yet.
func Open(o Options) *Keeper {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{log: o.Log, systemd: o.Systemd, kept: map[string]place{}, used: map[string]bool{},
		process: newProcess(o.Dir, o.Command)}
	if k.systemd != nil && k.systemd.has(probeName) { // an earlier agent was killed while it asked
		_ = k.systemd.remove(probeName)
	}
	return k
}

// maxName bounds a name, in bytes.
const maxName = 4096

func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsAny(name, "\n\x00") {
		return fmt.Errorf("the name of a held file has %d bytes, or an LF or NUL in it; use 1 to %d bytes without these",
			len(name), maxName)
	}
	return nil
}

// Keep has a file kept until Release, also when this process ends. It may be a FIFO that is open
// for reading, a listening socket, or a datagram socket. The caller may close it afterwards. What
// was kept under the name before is given up, unless it is the same file.
func (k *Keeper) Keep(name string, f *os.File) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := control(f, holdable); err != nil {
		return err
	}
	k.change.Lock()
	defer k.change.Unlock()
	k.used[name] = true
	by, err := k.keep(name, f)
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.kept, name); err == nil {
		k.kept[name] = by
	}
	return err
}

func (k *Keeper) keep(name string, f *os.File) (place, error) {
	if k.systemd == nil {
		return inProcess, k.process.keep(name, f)
	}
	err := k.systemd.keep(fdName(name), f)
	if err == nil {
		return inSystemd, k.process.forget(name) // it may have it from an agent that systemd has not run
	}
	k.mu.Lock()
	told := k.full
	k.full = true
	k.mu.Unlock()
	other := k.process.keep(name, f)
	if !told && other == nil {
		k.log.Warn("systemd does not hold a file over restarts of the agent; nearside hold does, "+
			"which a unit without KillMode=process ends with the agent. "+
			"Set FileDescriptorStoreMax= in the unit to more than the number of FIFOs and listening sockets", "name", name,
			"error", err)
	}
	if other != nil {
		return 0, errors.Join(err, other)
	}
	return inProcess, nil
}

// Take returns what an earlier process has kept under a name; false where there is nothing. It is
// still kept then.
func (k *Keeper) Take(name string) (*os.File, bool) {
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

// Names returns the names that begin with a text of all that earlier processes and this one have
// kept, sorted. Names that systemd takes as a hash alone are not among them.
func (k *Keeper) Names(prefix string) []string {
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

// Holds asks who keeps the file of a name whether he does.
func (k *Keeper) Holds(name string) bool {
	k.mu.Lock()
	by := k.kept[name]
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

// Release gives up what is kept under a name. Nothing may be.
func (k *Keeper) Release(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	k.change.Lock()
	defer k.change.Unlock()
	k.mu.Lock()
	by := k.kept[name]
	delete(k.kept, name)
	k.mu.Unlock()
	var err error
	if k.systemd != nil && (by == inSystemd || k.systemd.has(fdName(name))) {
		err = k.systemd.remove(fdName(name))
	}
	if by != inSystemd {
		err = errors.Join(err, k.process.forget(name))
	}
	return err
}

// ReleaseRemoved gives up FIFOs of earlier agents that have no name in any directory any more, so
// that who still writes into one gets an error instead of waiting for ever.
func (k *Keeper) ReleaseRemoved() error {
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
			err = errors.Join(err, k.process.forget(name))
		}
		f.Close()
	}
	return errors.Join(append(errs, err)...)
}

// ReleaseUnused gives up what earlier agents have kept under names with a prefix, and this one has
// neither kept nor taken: sockets of addresses that its config does not have any more.
func (k *Keeper) ReleaseUnused(prefix string) error {
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
			err = errors.Join(err, k.process.forget(name))
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

// By says who holds a file that was kept, for a status; "" for nobody.
func (k *Keeper) By(name string) string {
	k.mu.Lock()
	by, full := k.kept[name], k.full
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

// Run sees to it that the process is there while it holds anything, until the context ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.process.run(ctx)
	k.change.Lock()
	defer k.change.Unlock()
	if k.systemd != nil {
		k.systemd.close()
	}
	return nil
}

// control calls fn with a descriptor, without making it a blocking one.
func control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = fn(int(fd)) })
	return errors.Join(failed, err)
}

var errNotHoldable = errors.New("what is to be held is neither a FIFO that is open for reading, " +
	"nor a listening socket, nor a datagram socket")

// holdable says why a descriptor is not held: a holder that took anything would keep connections
// and files open for whoever asks.
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
