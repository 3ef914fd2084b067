package hold

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

// The protocol of a holder's socket has one message per request and response. A request has the
// version, the operation, and a name; opHold also passes a descriptor. A response has the
// version, the status, and a text; opTake also passes a descriptor if there is one.
const (
	version    = 1
	socketName = "hold.sock"
	lockName   = "hold.lock"

	opHold    = 'h'
	opRelease = 'r'
	opTake    = 't'
	opList    = 'l' // returns the names after the given one, each followed by an LF, as many as fit

	statusOK     = 0
	statusFailed = 1

	maxMessage = 16 << 10
	maxHeld    = 4096
	maxConns   = 16

	// SocketTime is how long sockets are held without an agent. Clients of a held socket wait,
	// but fail immediately if there is no socket.
	SocketTime = 20 * time.Second
)

// ErrHeldElsewhere says that the run directory already has a holder.
var ErrHeldElsewhere = errors.New("another holder serves this directory")

// request is a decoded request.
type request struct {
	op   byte
	name string
}

func decodeRequest(b []byte) (request, error) {
	switch {
	case len(b) < 2:
		return request{}, errors.New("the request is too short")
	case b[0] != version:
		return request{}, fmt.Errorf("the request has version %d; this holder supports %d", b[0], version)
	}
	r := request{op: b[1], name: string(b[2:])}
	switch {
	case r.op != opHold && r.op != opRelease && r.op != opTake && r.op != opList:
		return request{}, fmt.Errorf("the request has the unknown operation %q", r.op)
	case r.op == opList:
		return r, nil
	}
	return r, checkName(r.name)
}

// server holds descriptors.
type server struct {
	away  time.Duration // SocketTime, shorter in tests
	mu    sync.Mutex
	held  map[string]*os.File
	conns atomic.Int32
}

// Serve holds files for a [Holder] at a socket in a directory. It returns when ctx ends, when the
// directory is removed, or when it has held nothing for the time idle without connections; 0
// means no such limit. It releases sockets when no agent has been connected for [SocketTime]. It
// returns ErrHeldElsewhere if another holder serves the directory.
func Serve(ctx context.Context, dir string, idle time.Duration) error {
	return serve(ctx, dir, idle, SocketTime)
}

func serve(ctx context.Context, dir string, idle, away time.Duration) error {
	d, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the run directory %s: %w; create it, or use --dir for another one", dir, err)
	}
	defer unix.Close(d)
	lock, err := unix.Openat(d, lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s/%s: %w", dir, lockName, err)
	}
	defer unix.Close(lock)
	if err := unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return ErrHeldElsewhere
	}
	if err := unix.Unlinkat(d, socketName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s/%s: %w", dir, socketName, err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", d, socketName) // a short path for any length of dir
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("listen on %s/%s: %w", dir, socketName, err)
	}
	l.SetUnlinkOnClose(false)
	if err := unix.Fchmodat(d, socketName, 0o600, 0); err != nil {
		l.Close()
		return fmt.Errorf("chmod %s/%s: %w", dir, socketName, err)
	}
	var own unix.Stat_t
	if err := unix.Fstatat(d, socketName, &own, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		l.Close()
		return err
	}
	s := &server{away: away, held: map[string]*os.File{}}
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
			return fmt.Errorf("accept on %s/%s: %w", dir, socketName, err)
		}
		if s.conns.Load() >= maxConns || !trustedPeer(c) {
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

// trustedPeer reports whether the peer runs as this user or root.
func trustedPeer(c *net.UnixConn) bool {
	cred := peerOf(c)
	return cred != nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid())
}

func peerOf(c *net.UnixConn) (cred *unix.Ucred) {
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

// watch stops the holder when it is no longer needed.
func (s *server) watch(ctx context.Context, cancel func(), dir int, ino uint64, idle time.Duration) {
	every := max(s.away/4, time.Millisecond)
	if idle > 0 {
		every = min(every, max(idle/2, time.Millisecond))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var since, alone time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var st unix.Stat_t
		if err := unix.Fstatat(dir, socketName, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Ino != ino {
			cancel() // the directory is removed, or clients cannot find this holder anymore
			return
		}
		switch {
		case s.conns.Load() > 0:
			alone = time.Time{}
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) >= s.away:
			s.closeSockets()
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

func (s *server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.held {
		f.Close()
	}
	s.held = nil
}

// closeSockets releases everything except FIFOs, unless an agent is connected.
func (s *server) closeSockets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns.Load() > 0 {
		return
	}
	for name, f := range s.held {
		if isSocket(f) {
			f.Close()
			delete(s.held, name)
		}
	}
}

func isSocket(f *os.File) bool {
	var st unix.Stat_t
	err := control(f, func(fd int) error { return unix.Fstat(fd, &st) })
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// serve handles one connection.
func (s *server) serve(c *net.UnixConn) {
	b, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
		if err != nil || n == 0 {
			return
		}
		files := receivedFiles(oob[:oobn], "held")
		status, text := byte(statusOK), ""
		var give *os.File
		if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			err = errors.New("the request is too long")
		} else {
			text, give, err = s.answer(b[:n], files)
		}
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
		if err != nil {
			status, text = statusFailed, err.Error()
		}
		message := append([]byte{version, status}, text...)
		if give == nil {
			_, err = c.Write(message)
		} else {
			err = control(give, func(fd int) error {
				_, _, err := c.WriteMsgUnix(message, unix.UnixRights(fd), nil)
				return err
			})
			give.Close()
		}
		if err != nil {
			return
		}
	}
}

// receivedFiles returns the descriptors of a message.
func receivedFiles(oob []byte, name string) (out []*os.File) {
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
			out = append(out, os.NewFile(uintptr(fd), name))
		}
	}
	return out
}

// answer handles a request. It sets a file that it holds to nil in files. A returned file is a
// copy.
func (s *server) answer(b []byte, files []*os.File) (text string, give *os.File, err error) {
	r, err := decodeRequest(b)
	if err != nil {
		return "", nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.op {
	case opHold:
		if len(files) != 1 {
			return "", nil, fmt.Errorf("%d descriptors came with the request; send 1", len(files))
		}
		if err := control(files[0], holdable); err != nil {
			return "", nil, err
		}
		old := s.held[r.name]
		if old == nil && len(s.held) >= maxHeld {
			return "", nil, fmt.Errorf("%d files are held, which is the limit", len(s.held))
		}
		s.held[r.name] = files[0]
		files[0] = nil
		if old != nil {
			old.Close()
		}
	case opRelease:
		if f := s.held[r.name]; f != nil {
			f.Close()
			delete(s.held, r.name)
		}
	case opTake:
		if f := s.held[r.name]; f != nil {
			give, err = duplicate(f)
		}
	case opList:
		var out strings.Builder
		for _, name := range slices.Sorted(maps.Keys(s.held)) {
			if name <= r.name {
				continue
			}
			if out.Len()+len(name)+3 > maxMessage {
				break
			}
			out.WriteString(name + "\n")
		}
		return out.String(), nil, nil
	}
	return "", give, err
}
