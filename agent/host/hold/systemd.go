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
// Systemd says nothing of what it does not take. So after each file a probe is sent, and asked for:
// where the probe was kept, there was space for the file.
type Systemd struct {
	socket string                // NOTIFY_SOCKET
	found  map[string][]*os.File // by FDNAME: what this process got at its start
}

// FromEnvironment returns the descriptor store of the systemd that has started this process, with
// what it has given to it; nil where there is none, or one before version 248, which drops FIFOs
// from its store once nobody writes into them. Files with one of the names are those of socket
// units (FileDescriptorName=) and no part of the store, and are there with every version. It unsets
// the variables by which files are given, and is called once.
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
			_ = f.Close() // nobody would read it, and who writes into it would wait
		default:
			stored = append(stored, f)
		}
	}
	if none {
		return nil, sockets
	}
	return newSystemd(socket, stored), sockets
}

// newSystemd returns the store behind a socket. The files are called by their FDNAMEs.
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

var errStoreFull = errors.New("its descriptor store is switched off or full (FileDescriptorStoreMax=)")

// fdName makes a name that systemd allows: printable ASCII without a colon. One that is too long is
// hashed.
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

// plainName is the name that fdName has made a name of; "" for a hash.
func plainName(fdName string) string {
	if strings.HasPrefix(fdName, hashedName) {
		return ""
	}
	name, err := url.PathUnescape(fdName) // which knows the same escapes
	if err != nil {
		return ""
	}
	return name
}

func (s *Systemd) has(fdName string) bool { return len(s.found[fdName]) > 0 }

// keep has systemd hold a file, unless it does.
func (s *Systemd) keep(fdName string, f *os.File) error {
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
		_ = s.send("FDSTOREREMOVE=1\nFDNAME=" + fdName) // it may be there
		return fmt.Errorf("systemd: %w", err)
	}
	own, err := duplicate(f)
	if err != nil {
		return err
	}
	s.found[fdName] = []*os.File{own}
	return nil
}

// take returns a copy of what systemd holds.
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

// store sends a file. FDPOLL=0 has a FIFO stay in the store that nobody writes into.
func (s *Systemd) store(fdName string, fd int) error {
	return s.send("FDSTORE=1\nFDPOLL=0\nFDNAME="+fdName, fd)
}

// probe asks whether the store had space for one more file than it has.
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

// barrier waits until systemd has worked on all that was sent.
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
		return fmt.Errorf("it has not answered for %s", systemdCall)
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

// close closes the copies of this process. What systemd holds stays.
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
