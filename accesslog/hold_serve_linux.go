package accesslog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What goes over the socket of a holder: one message for a request and one for its answer. A request is the version, the
// operation and a path; with opHold a descriptor comes along. An answer is the version, the status and a text.
const (
	holdVersion = 1
	holdSocket  = "hold.sock"
	holdLock    = "hold.lock"

	opHold    = 'h'
	opRelease = 'r'
	opList    = 'l' // answers with the paths after the one given, each with an LF, as many as fit

	holdOK     = 0
	holdFailed = 1

	maxHoldMessage = 16 << 10
	maxHeld        = 4096
	maxHoldPath    = 4096
	maxHoldConns   = 16
)

// ErrHeldElsewhere is for a run directory that has a holder already.
var ErrHeldElsewhere = errors.New("another holder serves this directory")

// holdRequest is a decoded request.
type holdRequest struct {
	op   byte
	path string
}

func decodeHoldRequest(b []byte) (holdRequest, error) {
	switch {
	case len(b) < 2:
		return holdRequest{}, errors.New("the request is too short")
	case b[0] != holdVersion:
		return holdRequest{}, fmt.Errorf("the request has version %d; this holder knows %d", b[0], holdVersion)
	}
	r := holdRequest{op: b[1], path: string(b[2:])}
	switch {
	case r.op != opHold && r.op != opRelease && r.op != opList:
		return holdRequest{}, fmt.Errorf("the request has the unknown operation %q", r.op)
	case r.path == "" && r.op == opList:
	case len(r.path) > maxHoldPath || !strings.HasPrefix(r.path, "/") || strings.ContainsAny(r.path, "\n\x00"):
		return holdRequest{}, errors.New("the path is not absolute, too long, or has an LF or NUL in it")
	}
	return r, nil
}

// holdServer keeps descriptors.
type holdServer struct {
	mu    sync.Mutex
	held  map[string]*os.File
	conns atomic.Int32
}

// ServeHold keeps FIFOs open for [HoldProcess], by a socket in a directory, until the context ends, the directory is gone, or
// for the time idle it holds nothing and nobody is connected; 0: forever. It returns ErrHeldElsewhere where another one
// serves the directory.
func ServeHold(ctx context.Context, dir string, idle time.Duration) error {
	d, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the run directory %s: %w; make it, or name another with --dir", dir, err)
	}
	defer unix.Close(d)
	lock, err := unix.Openat(d, holdLock, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s/%s: %w", dir, holdLock, err)
	}
	defer unix.Close(lock)
	if err := unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return ErrHeldElsewhere
	}
	if err := unix.Unlinkat(d, holdSocket, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s/%s: %w", dir, holdSocket, err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", d, holdSocket) // short, whatever the length of dir
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("listen on %s/%s: %w", dir, holdSocket, err)
	}
	l.SetUnlinkOnClose(false)
	if err := unix.Fchmodat(d, holdSocket, 0o600, 0); err != nil {
		l.Close()
		return fmt.Errorf("chmod %s/%s: %w", dir, holdSocket, err)
	}
	var own unix.Stat_t
	if err := unix.Fstatat(d, holdSocket, &own, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		l.Close()
		return err
	}
	s := &holdServer{held: map[string]*os.File{}}
	defer s.closeAll()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { l.Close() })
	tasks.Go(func() { s.watch(ctx, cancel, d, own.Ino, idle) })
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept on %s/%s: %w", dir, holdSocket, err)
		}
		if s.conns.Load() >= maxHoldConns || !trustedPeer(c) {
			c.Close()
			continue
		}
		s.conns.Add(1)
		tasks.Go(func() {
			defer s.conns.Add(-1)
			defer c.Close()
			end := context.AfterFunc(ctx, func() { c.Close() })
			defer end()
			s.serve(c)
		})
	}
}

// trustedPeer reports whether the other side is of this user or root.
func trustedPeer(c *net.UnixConn) bool {
	cred := holdPeerOf(c)
	return cred != nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid())
}

func holdPeerOf(c *net.UnixConn) (cred *unix.Ucred) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		return nil
	}
	return cred
}

// watch ends the holder once nobody needs it.
func (s *holdServer) watch(ctx context.Context, cancel func(), dir int, ino uint64, idle time.Duration) {
	every := 30 * time.Second
	if idle > 0 {
		every = min(every, max(idle/2, time.Millisecond))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var since time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var st unix.Stat_t
		if err := unix.Fstatat(dir, holdSocket, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Ino != ino {
			cancel() // the directory is gone, or nobody can find this holder any more
			return
		}
		s.mu.Lock()
		used := len(s.held) > 0 || s.conns.Load() > 0
		s.mu.Unlock()
		switch {
		case used || idle == 0:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= idle:
			cancel()
			return
		}
	}
}

func (s *holdServer) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.held {
		f.Close()
	}
	s.held = nil
}

// serve answers one connection.
func (s *holdServer) serve(c *net.UnixConn) {
	b, oob := make([]byte, maxHoldMessage), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
		if err != nil || n == 0 {
			return
		}
		files := receivedFiles(oob[:oobn])
		status, text := byte(holdOK), ""
		if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			err = errors.New("the request is too long")
		} else {
			text, err = s.answer(b[:n], files)
		}
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
		if err != nil {
			status, text = holdFailed, err.Error()
		}
		if _, err := c.Write(append([]byte{holdVersion, status}, text...)); err != nil {
			return
		}
	}
}

// receivedFiles returns the descriptors that came with a message.
func receivedFiles(oob []byte) (out []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			out = append(out, os.NewFile(uintptr(fd), "held"))
		}
	}
	return out
}

// answer does what a request says. A file that is kept is nil in files afterwards.
func (s *holdServer) answer(b []byte, files []*os.File) (string, error) {
	r, err := decodeHoldRequest(b)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.op {
	case opHold:
		if len(files) != 1 {
			return "", fmt.Errorf("%d descriptors came with the request; send 1", len(files))
		}
		var st unix.Stat_t
		fd := files[0].Fd()
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err != nil || unix.Fstat(int(fd), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO || flags&unix.O_ACCMODE != unix.O_RDONLY {
			return "", errors.New("the descriptor is not that of a FIFO that is open for reading")
		}
		old := s.held[r.path]
		if old == nil && len(s.held) >= maxHeld {
			return "", fmt.Errorf("%d FIFOs are held, which is the limit", len(s.held))
		}
		s.held[r.path] = files[0]
		files[0] = nil
		if old != nil {
			old.Close()
		}
	case opRelease:
		if f := s.held[r.path]; f != nil {
			f.Close()
			delete(s.held, r.path)
		}
	case opList:
		var out strings.Builder
		for _, p := range slices.Sorted(maps.Keys(s.held)) {
			if p > r.path && out.Len()+len(p)+3 <= maxHoldMessage {
				out.WriteString(p + "\n")
			} else if p > r.path {
				break
			}
		}
		return out.String(), nil
	}
	return "", nil
}
