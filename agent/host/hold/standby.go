package hold

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/nearside-mesh/nearside/dns/standby"
)

// standBy answers DNS queries while the agent hangs: it is connected and has passed the sockets
// that it reads, but does not read them. Without a connected agent, queries wait for the next one.
func (s *server) standBy(ctx context.Context) {
	w, hung := standby.New(s.opts.hung), false
	timer := time.NewTimer(s.opts.hung)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(s.look(w))
		now, answered := w.Hung()
		switch {
		case now && !hung:
			s.opts.Log.Error("the agent does not read DNS queries: they get SERVFAIL until it does; see its log, and if it " +
				"does not recover, kill it with SIGABRT, which writes the stacks of its goroutines to its log, and start it")
		case !now && hung:
			s.opts.Log.Info("DNS queries wait for the agent as usual", "failed", answered)
		}
		hung = now
	}
}

// look examines the DNS sockets that agents read.
func (s *server) look(w *standby.Watch) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := map[string]*os.File{}
	for name := range s.served {
		if f := s.held[name]; f != nil {
			files[name] = f
		}
	}
	return w.Look(time.Now(), files)
}

// left records that the agent of a connection reads no sockets any more.
func (s *server) left(c *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, by := range s.served {
		if by == c {
			delete(s.served, name)
		}
	}
}
