package hold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// takeOver takes the files of a holder that an agent has started, ends that holder, and locks the
// run directory. It returns false if the other holder stays. The agent may start another one
// meanwhile.
func (s *server) takeOver(ctx context.Context, dir string, lock int) bool {
	ctx, cancel := context.WithTimeout(ctx, processCall)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB) != nil {
		if err := s.takeFiles(dir); errors.As(err, new(errRefused)) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// takeFiles takes the files of the holder that serves a directory, and ends it. It returns an
// errRefused if the other holder stays.
func (s *server) takeFiles(dir string) error {
	p := newProcess(dir, nil)
	defer p.close()
	names, err := p.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if f := p.take(name); f != nil {
			if old := s.held[name]; old != nil {
				old.Close()
			}
			s.held[name] = f
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.connect(false); err != nil {
		return err
	}
	_, _, err = p.call(opQuit, "", nil)
	return err
}

// openFIFOs opens the FIFOs of a directory under their paths, as agents name them. Without a
// reader, their writers would lose lines until an agent starts.
func (s *server) openFIFOs(dir string) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return // there are none yet
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		if e.Type() != os.ModeNamedPipe || len(s.held) >= maxHeld || s.held[path] != nil || checkName(path) != nil {
			continue
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if holdable(fd) != nil || unix.SetNonblock(fd, false) != nil {
			unix.Close(fd)
			continue
		}
		s.held[path], s.found[path] = os.NewFile(uintptr(fd), path), true
	}
}

// forgetFound releases a file that this process has opened itself if an agent holds the same file
// under any name. The caller holds mu.
func (s *server) forgetFound(name string, f *os.File) {
	delete(s.found, name) // the agent's file replaces it
	for other := range s.found {
		if sameFile(s.held[other], f) {
			s.held[other].Close()
			delete(s.held, other)
			delete(s.found, other)
		}
	}
}

func sameFile(a, b *os.File) bool {
	var x, y unix.Stat_t
	if control(a, func(fd int) error { return unix.Fstat(fd, &x) }) != nil ||
		control(b, func(fd int) error { return unix.Fstat(fd, &y) }) != nil {
		return false
	}
	return x.Dev == y.Dev && x.Ino == y.Ino
}

// State describes a running holder.
type State struct {
	Pid      int // 0: in another PID namespace
	Protocol int // see [Protocol]
	FIFOs    int
	Sockets  int
	Stay     bool // see [ServeOptions]
}

// parseState decodes the text of a response to opState.
func parseState(text string) (s State, err error) {
	_, err = fmt.Sscanf(text, "%d %d %d %t", &s.Protocol, &s.FIFOs, &s.Sockets, &s.Stay)
	return s, err
}

// state returns the state without the pid as text. The caller holds mu.
func (s *server) state() string {
	fifos := 0
	for name := range s.held {
		if isFIFO(name) {
			fifos++
		}
	}
	return fmt.Sprintf("%d %d %d %t", Protocol, fifos, len(s.held)-fifos, s.opts.Stay)
}

// Check returns the state of the holder that serves a directory. It returns an error if none does.
func Check(dir string) (State, error) {
	c, err := dial(dir)
	if err != nil {
		return State{}, fmt.Errorf("no holder serves %s: %w; run nearside hold --dir %s", dir, err, dir)
	}
	defer c.Close()
	out := State{Protocol: 1}
	text, _, err := exchange(c, opState, "", nil)
	if err == nil {
		out, err = parseState(text)
	}
	if err != nil && !errors.As(err, new(errRefused)) { // an old holder refuses the operation
		return State{}, fmt.Errorf("the holder of %s does not respond: %w", dir, err)
	}
	out.Pid = int(peerOf(c).Pid)
	return out, nil
}
