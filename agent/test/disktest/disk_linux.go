package disktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Disk records the changes to the files of a directory, without subdirectories. It is safe for
// concurrent use.
type Disk struct {
	t   testing.TB
	dir string

	mu         sync.Mutex
	fault      func(Operation) error // mu
	operations []Operation           // mu
	failure    error                 // mu; of the disk
	initial    map[string][]byte
}

// New returns a disk with the present files of a directory, which are durable. It skips the test if
// the kernel does not report operations.
func New(t testing.TB, dir string) *Disk {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := &Disk{t: t, dir: dir, initial: map[string][]byte{}}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if d.initial[n.Name()], err = os.ReadFile(filepath.Join(dir, n.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// TempDir returns a new directory in memory if possible, where syncs take no time.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "disktest")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Position returns the number of recorded operations.
func (d *Disk) Position() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.operations)
}

// SetFault makes operations fail for which fault returns a unix.Errno. Nil removes the fault.
func (d *Disk) SetFault(fault func(Operation) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// fail records an error of the disk, which Replay reports. It writes nothing, because a write could
// wait for its caller.
func (d *Disk) fail(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failure = errors.Join(d.failure, fmt.Errorf(format, args...))
}

// Replay returns a replay of the recorded operations.
func (d *Disk) Replay() *Replay {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure != nil {
		d.t.Fatal(d.failure)
	}
	return newReplay(d.initial, d.operations[:len(d.operations):len(d.operations)])
}

// RecordAll records the operations of all threads of this process until it ends. A process can call
// it once. It changes the process permanently, so only a process started for one test can use it.
func RecordAll(t testing.TB, disks ...*Disk) {
	t.Helper()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		listener, err := listen(unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH)
		started <- err
		for err == nil {
			err = serve(listener, disks)
		}
	}()
	if err := <-started; err != nil {
		t.Skipf("this test needs seccomp user notifications: %v", err)
	}
}

// Run runs fn on a separate thread and records its operations, not those of other goroutines. fn
// may call t.FailNow. Syncs take no time, because they do not reach the real disk.
func (d *Disk) Run(fn func()) {
	d.t.Helper()
	started := make(chan error, 1)
	done := make(chan bool, 1)
	var listener int
	go func() {
		complete := false
		defer func() { done <- complete }()
		runtime.LockOSThread() // without an unlock, the thread ends with the goroutine
		fd, err := listen(0)
		listener = fd
		started <- err
		if err == nil {
			fn()
			complete = true
		}
	}()
	if err := <-started; err != nil {
		<-done
		d.t.Skipf("this test needs seccomp user notifications: %v", err)
	}
	defer unix.Close(listener)
	for {
		select {
		case complete := <-done:
			if !complete {
				d.t.FailNow()
			}
			return
		default:
		}
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, 1); err != nil || poll[0].Revents&unix.POLLIN == 0 {
			continue
		}
		if err := serve(listener, []*Disk{d}); err != nil {
			d.t.Fatal(err)
		}
	}
}

// notification is struct seccomp_notif of linux/seccomp.h.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// response is struct seccomp_notif_resp of linux/seccomp.h.
type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// serve receives one operation, records it, and lets the kernel continue it.
func serve(listener int, disks []*Disk) error {
	var n notification
	switch err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR):
		return nil // a signal has interrupted the operation; it restarts
	case err != nil:
		return fmt.Errorf("receive an operation: %w", err)
	}
	r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	for _, d := range disks {
		if o, ok := d.operation(&n); ok {
			errno := d.record(&o)
			if o.Failed || o.Kind == Sync || o.Kind == SyncDir {
				r.flags, r.errno = 0, -int32(errno)
			}
			break
		}
	}
	err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("continue an operation: %w", err)
	}
	return nil
}

// record adds an operation, and returns the error that the program gets.
func (d *Disk) record(o *Operation) (errno unix.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault != nil {
		if err := d.fault(*o); err != nil {
			o.Failed = true
			if !errors.As(err, &errno) {
				errno = unix.EIO
			}
		}
	}
	d.operations = append(d.operations, *o)
	return errno
}

func ioctl(fd int, request uint, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// listen installs a filter for the calling thread, or with flags for all threads. The filter
// reports changes of files to the returned file descriptor.
func listen(flags uintptr) (int, error) {
	program, err := filter()
	if err != nil {
		return 0, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("no_new_privs: %w", err)
	}
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	var errno unix.Errno
	for _, wait := range []uintptr{unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 0} { // since Linux 5.19
		var fd uintptr
		fd, _, errno = unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
			unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|flags|wait, uintptr(unsafe.Pointer(&p)))
		if errno == 0 {
			return int(fd), nil
		}
	}
	return 0, fmt.Errorf("install a filter: %w", errno)
}

// reported lists system calls that the filter always reports.
var reported = []uint32{
	unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_TRUNCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_UNLINKAT,
}

// filter returns a program that reports changes of files. It allows writes to event descriptors:
// the runtime writes to them while it cannot wait.
func filter() ([]unix.SockFilter, error) {
	const load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	const args = uint32(unsafe.Offsetof(notification{}.args) - unsafe.Offsetof(notification{}.nr)) // little endian
	statement := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	result := func(k uint32) unix.SockFilter { return statement(unix.BPF_RET|unix.BPF_K, k) }
	jump := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	out := []unix.SockFilter{statement(load, 0)}
	for _, nr := range []uint32{unix.SYS_COPY_FILE_RANGE, unix.SYS_SENDFILE} { // programs write instead
		out = append(out, jump(nr, 0, 1), result(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	}
	for _, nr := range reported {
		out = append(out, jump(nr, 0, 1), result(unix.SECCOMP_RET_USER_NOTIF))
	}
	out = append(out, jump(unix.SYS_OPENAT, 0, 4), statement(load, args+2*8),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.O_CREAT | unix.O_TRUNC, Jt: 0, Jf: 1},
		result(unix.SECCOMP_RET_USER_NOTIF), result(unix.SECCOMP_RET_ALLOW),
		jump(unix.SYS_WRITE, 1, 0), result(unix.SECCOMP_RET_ALLOW), statement(load, args))
	events, err := eventDescriptors()
	for _, fd := range events {
		out = append(out, jump(fd, 0, 1), result(unix.SECCOMP_RET_ALLOW))
	}
	return append(out, result(unix.SECCOMP_RET_USER_NOTIF)), err
}

// eventDescriptors returns the file descriptors of the runtime's events.
func eventDescriptors() (out []uint32, err error) {
	if r, w, err := os.Pipe(); err == nil { // the runtime creates its events with the first pipe
		_ = errors.Join(r.Close(), w.Close())
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		var fd uint32
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if _, scanErr := fmt.Sscan(e.Name(), &fd); err == nil && scanErr == nil && target == "anon_inode:[eventfd]" {
			out = append(out, fd)
		}
	}
	return out, nil
}
