package hold

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// Systemd is the descriptor store of systemd for this process (sd_pid_notify_with_fds(3),
// "FDSTORE=1").
//
// systemd does not report descriptors that it rejects. Therefore a probe is stored after each
// file: if systemd accepts the probe, it also had space for the file.
type Systemd struct {
	socket string                // NOTIFY_SOCKET
	found  map[string][]*os.File // files received at startup, by FDNAME
}

// FromEnvironment returns the descriptor store of the systemd that started this process, with the
// stored files. It returns nil if there is none, or if systemd is older than version 248, which
// drops FIFOs without writers from its store. Files with one of the given names belong to socket
// units (FileDescriptorName=), not to the store, and are returned for every version.
// FromEnvironment unsets the environment variables of passed files; call it only once.
func FromEnvironment(names ...string) (store *Systemd, sockets []*os.File) {
	files := activation.Files(true)
	socket := os.Getenv("NOTIFY_SOCKET")
	pid, err := strconv.Atoi(os.Getenv("SYSTEMD_EXEC_PID")) // since version 248
	none := err != nil || pid != os.Getpid() || !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@")
	var stored []*os.File
	for _, f := range files {
		switch {
		case slices.Contains(names, f.Name()):
			sockets = append(sockets, f)
		case none:
			_ = f.Close() // without a reader, writers of the FIFO would block
		default:
			stored = append(stored, f)
		}
	}
	if none {
		return nil, sockets
	}
	return newSystemd(socket, stored), sockets
}

// newSystemd returns the store behind a socket. Files are named by their FDNAME.
func newSystemd(socket string, files []*os.File) *Systemd {
	s := &Systemd{socket: socket, found: map[string][]*os.File{}}
	for _, f := range files {
		s.found[f.Name()] = append(s.found[f.Name()], f)
	}
	return s
}

const (
	probeName   = "nearside-probe"
	hashedName  = "nearside-sha256-"
	maxFDName   = 255
	systemdCall = 5 * time.Second
)

var errStoreFull = errors.New("its descriptor store is disabled or full (FileDescriptorStoreMax=)")

// fdName converts a name to one that systemd allows: printable ASCII without a colon. It hashes
// names that are too long.
func fdName(name string) string {
	if e := escaped(name); len(e) <= maxFDName && !strings.HasPrefix(name, "nearside-") {
		return e
	}
	sum := sha256.Sum256([]byte(name))
	return hashedName + hex.EncodeToString(sum[:])
}

func escaped(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || c == ':' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// plainName reverses fdName; it returns "" for a hash.
func plainName(fdName string) string {
	if strings.HasPrefix(fdName, hashedName) {
		return ""
	}
	name, err := url.PathUnescape(fdName) // reads the same escapes
	if err != nil {
		return ""
	}
	return name
}

func (s *Systemd) has(fdName string) bool { return len(s.found[fdName]) > 0 }

// hold stores a file unless systemd already has it.
func (s *Systemd) hold(fdName string, f *os.File) error {
	have := s.found[fdName]
	if len(have) == 1 && sameFile(have[0], f) {
		return nil
	}
	if len(have) > 0 {
		if err := s.remove(fdName); err != nil {
			return err
		}
	}
	err := control(f, func(fd int) error { return s.store(fdName, fd) })
	if err == nil {
		err = s.probe()
	}
	if err != nil {
		_ = s.send("FDSTOREREMOVE=1\nFDNAME=" + fdName) // it may be stored despite the error
		return fmt.Errorf("systemd: %w", err)
	}
	own, err := duplicate(f)
	if err != nil {
		return err
	}
	s.found[fdName] = []*os.File{own}
	return nil
}

// take returns a copy of a stored file.
func (s *Systemd) take(fdName string) *os.File {
	if !s.has(fdName) {
		return nil
	}
	f, err := duplicate(s.found[fdName][0])
	if err != nil {
		return nil
	}
	return f
}

func (s *Systemd) remove(fdName string) error {
	for _, f := range s.found[fdName] {
		f.Close()
	}
	delete(s.found, fdName)
	return s.send("FDSTOREREMOVE=1\nFDNAME=" + fdName)
}

// store sends a file. With FDPOLL=0, a FIFO without writers stays in the store.
func (s *Systemd) store(fdName string, fd int) error {
	return s.send("FDSTORE=1\nFDPOLL=0\nFDNAME="+fdName, fd)
}

// probe checks whether the store has space for one more file.
func (s *Systemd) probe() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = control(w, func(fd int) error { return s.store(probeName, fd) })
	w.Close()
	if err == nil {
		err = s.barrier()
	}
	if err != nil {
		return err
	}
	gone := false
	err = control(r, func(fd int) error {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, err := unix.Poll(p, 0)
		gone = p[0].Revents&unix.POLLHUP != 0
		return err
	})
	if gone {
		err = errStoreFull
	}
	return errors.Join(err, s.send("FDSTOREREMOVE=1\nFDNAME="+probeName))
}

// barrier waits until systemd has processed all messages.
func (s *Systemd) barrier() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = control(w, func(fd int) error { return s.send("BARRIER=1", fd) })
	w.Close()
	if err != nil {
		return err
	}
	_ = r.SetReadDeadline(time.Now().Add(systemdCall))
	if _, err := r.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("it did not respond within %s", systemdCall)
	}
	return nil
}

func (s *Systemd) send(state string, fds ...int) error {
	c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(c)
	patience := unix.NsecToTimeval(systemdCall.Nanoseconds())
	_ = unix.SetsockoptTimeval(c, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(c, []byte(state), rights, &unix.SockaddrUnix{Name: s.socket}, unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("send to %s: %w", s.socket, err)
	}
	return nil
}

// close closes this process's copies. The stored files stay.
func (s *Systemd) close() {
	for _, files := range s.found {
		for _, f := range files {
			f.Close()
		}
	}
	clear(s.found)
}

func sameFile(a, b *os.File) bool {
	var x, y unix.Stat_t
	if control(a, func(fd int) error { return unix.Fstat(fd, &x) }) != nil ||
		control(b, func(fd int) error { return unix.Fstat(fd, &y) }) != nil {
		return false
	}
	return x.Dev == y.Dev && x.Ino == y.Ino && x.Mode&unix.S_IFMT == y.Mode&unix.S_IFMT
}

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
