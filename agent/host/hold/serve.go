package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/dns/standby"
)

// Protocol is the version of the behavior of a holder. A package upgrade restarts a holder with an
// older one.
const Protocol = 3

// SocketTime is how long DNS sockets are held without an agent. Their clients wait, but use the
// next name server if there is no socket.
const SocketTime = 20 * time.Second

// Prefixes of names of sockets.
const (
	DNSPrefix = "dns/" // released after SocketTime without an agent
	APIPrefix = "api/" // released after a quarter of SocketTime: users want to know that no agent runs
	InPrefix  = "in/"  // for Envoys and log lines
)

// supervisedOnly reports whether a file is held only with [ServeOptions.Stay]. An agent that a user
// starts and stops in a terminal leaves no listening socket behind.
func supervisedOnly(name string) bool {
	return strings.HasPrefix(name, APIPrefix) || strings.HasPrefix(name, InPrefix)
}

// holdTime returns how long a file is held without an agent; 0: without a limit.
func holdTime(name string, dns time.Duration) time.Duration {
	switch {
	case strings.HasPrefix(name, APIPrefix):
		return dns / 4
	case strings.HasPrefix(name, DNSPrefix):
		return dns
	}
	return 0
}

// FIFODir is the directory of the FIFOs of access logs in the run directory.
const FIFODir = "access"

// PodFIFODir is the directory of the FIFOs of pods, which only the agent can reach. They have other
// names in the directories of their pods.
const PodFIFODir = "access-pods"

// ErrHeldElsewhere says that the run directory already has a holder.
var ErrHeldElsewhere = errors.New("another holder serves this directory")

// ServeOptions are the options of [Serve].
type ServeOptions struct {
	// Stay is true if something restarts this process when it ends. It then runs without files too,
	// takes over from a holder that an agent has started, and opens the FIFOs of the run directory
	// itself, for the case that both the previous holder and the agent were killed.
	Stay bool
	// Idle is how long it runs without files and connections, unless Stay is set.
	Idle time.Duration
	// Ready is called when the socket accepts requests; nil: not called.
	Ready func()
	Log   *slog.Logger // nil discards

	hung time.Duration // standby.HungAfter; shorter in tests
	away time.Duration // SocketTime; shorter in tests
}

// server holds descriptors.
type server struct {
	opts  ServeOptions
	quit  func()
	mu    sync.Mutex
	held  map[string]*os.File
	found map[string]bool // names of files in held that this process has opened itself
	// served has the connections of the agents that read DNS sockets, by name
	served map[string]*net.UnixConn
	conns  atomic.Int32
}

// Serve holds files for a [Holder] at a socket in a directory. It returns when ctx ends, when the
// directory is removed, when another holder takes over, or when it has held nothing for the idle
// time. It releases sockets when no agent has been connected for the time of their prefix. While a
// connected agent does not read DNS queries, it answers them with SERVFAIL. It returns
// ErrHeldElsewhere if another holder serves the directory.
func Serve(ctx context.Context, dir string, o ServeOptions) error {
	if o.away == 0 {
		o.away = SocketTime
	}
	if o.hung == 0 {
		o.hung = standby.HungAfter
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
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
	s := &server{opts: o, held: map[string]*os.File{}, found: map[string]bool{},
		served: map[string]*net.UnixConn{}}
	defer s.closeAll()
	if unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB) != nil {
		if !o.Stay || !s.takeOver(ctx, dir, lock) {
			return ErrHeldElsewhere
		}
	}
	if o.Stay {
		s.openFIFOs(filepath.Join(dir, FIFODir))
		s.openFIFOs(filepath.Join(dir, PodFIFODir))
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
	var tasks sync.WaitGroup
	defer tasks.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.quit = cancel
	tasks.Go(func() { <-ctx.Done(); l.Close() })
	tasks.Go(func() { s.watch(ctx, d, own.Ino) })
	tasks.Go(func() { s.standBy(ctx) })
	if o.Ready != nil {
		o.Ready()
	}
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

// watch stops the holder when it is no longer needed.
func (s *server) watch(ctx context.Context, dir int, ino uint64) {
	every, idle := max(s.opts.away/8, time.Millisecond), s.opts.Idle
	if s.opts.Stay {
		idle = 0
	}
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
			s.quit() // the directory is removed, or clients cannot find this holder anymore
			return
		}
		switch {
		case s.conns.Load() > 0:
			alone = time.Time{}
		case alone.IsZero():
			alone = time.Now()
		default:
			s.closeSockets(time.Since(alone))
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
			s.quit()
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

// isFIFO reports whether a name is the path of a FIFO.
func isFIFO(name string) bool { return strings.HasPrefix(name, "/") }

// closeSockets releases the sockets that are not held for a time without an agent, unless one is
// connected.
func (s *server) closeSockets(without time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns.Load() > 0 {
		return
	}
	for name, f := range s.held {
		if limit := holdTime(name, s.opts.away); limit > 0 && without >= limit {
			f.Close()
			delete(s.held, name)
		}
	}
}

// serve handles one connection.
func (s *server) serve(c *net.UnixConn) {
	defer s.left(c)
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
			text, give, err = s.answer(c, b[:n], files)
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
		if status == statusOK && n >= 2 && b[1] == opQuit {
			s.quit()
		}
	}
}

// answer handles a request on a connection. It sets a file that it holds to nil in files. A
// returned file is a copy.
func (s *server) answer(c *net.UnixConn, b []byte, files []*os.File) (text string, give *os.File, err error) {
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
		s.forgetFound(r.name, files[0])
		old := s.held[r.name]
		if old == nil && len(s.held) >= maxHeld {
			return "", nil, fmt.Errorf("%d files are held, which is the limit", len(s.held))
		}
		s.held[r.name] = files[0]
		files[0] = nil
		if strings.HasPrefix(r.name, DNSPrefix) {
			s.served[r.name] = c
		}
		if old != nil {
			old.Close()
		}
	case opRelease:
		if f := s.held[r.name]; f != nil {
			f.Close()
			delete(s.held, r.name)
			delete(s.found, r.name)
			delete(s.served, r.name)
		}
	case opTake:
		if f := s.held[r.name]; f != nil {
			give, err = duplicate(f)
		}
	case opState:
		return s.state(), nil, nil
	case opQuit:
		if s.opts.Stay {
			return "", nil, errors.New("a service manager restarts this holder")
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
