package receive

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Defaults of [Options].
const (
	DefaultMaxConns  = 1024
	DefaultDrainTime = 5 * time.Second
)

// Times of a receiver.
const (
	tlsHandshakeTime = 10 * time.Second       // the most for that of TLS
	acceptPause      = 100 * time.Millisecond // after an error of accept, as when descriptors are used up
	reportEach       = 10 * time.Second       // between two entries about refused connections
)

// Options are those of a [Receiver]. All but Listener and To may be zero.
type Options struct {
	// Listener takes connections of TCP or of a unix socket. The receiver closes it.
	Listener net.Listener
	TLS      *tls.Config           // of the server; nil: plain
	To       accesslog.Destination // of all lines
	MaxConns int                   // that are open at a time; 0: DefaultMaxConns
	MaxLine  int                   // bytes of a line without its LF, a longer one is stored in several; 0: DefaultMaxLine
	Memory   int                   // bytes that connections may take together beyond 64 KiB each; 0: DefaultMemory
	Drain    time.Duration         // that connections have to end when the receiver stops; 0: DefaultDrainTime
	Log      *slog.Logger          // nil: nothing is logged
}

// Status are the counts of a receiver. In, Written and the others count lines since it was
// made.
type Status struct {
	accesslog.Stats
	Connections int64  `json:"connections"` // that are open
	Accepted    uint64 `json:"accepted"`
	Refused     uint64 `json:"refused,omitempty"` // closed at once, since MaxConns were open
	Failed      uint64 `json:"failed,omitempty"`  // handshakes of TLS
	// bytes that were in the kernel and not read when the time to stop was over
	Abandoned uint64 `json:"abandoned,omitempty"`
}

// Receiver takes lines from many connections and hands them to one [accesslog.Destination]. There
// is nothing between a connection and the destination but a buffer: where the destination waits,
// the senders do.
type Receiver struct {
	opts   Options
	log    *slog.Logger
	memory *accesslog.Buffers
	turns  turns
	count  accesslog.Counters

	open                                 atomic.Int64
	accepted, refused, failed, abandoned atomic.Uint64

	mu    sync.Mutex // held for moments
	conns map[*conn]struct{}
	stop  bool // connections are told to end

	told   time.Time // when refused connections were logged the last time; for the one who accepts
	untold int
}

// New returns a receiver. Nothing is accepted before [Receiver.Run].
func New(o Options) (*Receiver, error) {
	switch {
	case o.Listener == nil || o.To == nil:
		return nil, errors.New("a receiver needs a listener and a destination")
	case o.MaxConns < 0:
		return nil, fmt.Errorf("maxConnections: %d is negative; set a value >= 0", o.MaxConns)
	case o.MaxLine < 0:
		return nil, fmt.Errorf("maxLine: %d is negative; set a value >= 0", o.MaxLine)
	case o.Memory < 0:
		return nil, fmt.Errorf("memory: %d is negative; set a value >= 0", o.Memory)
	case o.Drain < 0:
		return nil, fmt.Errorf("drain: %s is negative; set a value >= 0", o.Drain)
	}
	if o.MaxConns == 0 {
		o.MaxConns = DefaultMaxConns
	}
	if o.Memory == 0 {
		o.Memory = accesslog.DefaultMemory
	}
	if o.Drain == 0 {
		o.Drain = DefaultDrainTime
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Receiver{opts: o, log: o.Log, memory: accesslog.NewBuffers(o.Memory), turns: make(turns, mostTurns),
		conns: map[*conn]struct{}{}}, nil
}

// Run takes connections until ctx ends. Then it takes no more, tells those that are open to end by
// closing its side of them, reads on until they have or the drain time is over, and returns nil.
// The destination must work until then. An error says that nothing can be accepted any more.
func (r *Receiver) Run(ctx context.Context) error {
	// Writes may go on after ctx, for the drain time.
	writes, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	var conns sync.WaitGroup
	var failed error
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		failed = r.accept(ctx, writes, &conns)
	}()
	select {
	case <-ctx.Done():
		if l, ok := r.opts.Listener.(interface{ SetDeadline(time.Time) error }); !ok ||
			l.SetDeadline(time.Unix(1, 0)) != nil {
			r.opts.Listener.Close()
		}
	case <-accepting:
	}
	<-accepting
	r.acceptWaiting(writes, &conns)
	r.opts.Listener.Close()
	r.endConns()
	timer := time.AfterFunc(r.opts.Drain, func() { cut(errStopped) })
	conns.Wait()
	timer.Stop()
	if n := r.abandoned.Load(); n > 0 {
		r.log.Warn("senders did not end in time, and what they sent last is lost", "bytes", n, "waited", r.opts.Drain)
	}
	return failed
}

var errStopped = errors.New("the receiver stops")

// accept takes connections until ctx ends, or until the listener fails.
func (r *Receiver) accept(ctx, writes context.Context, conns *sync.WaitGroup) error {
	for {
		c, err := r.opts.Listener.Accept()
		switch {
		case err == nil:
			r.begin(writes, c, conns)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("the listener of access logs was closed: %w", err)
		default:
			// Descriptors are used up, or a peer was gone at once: connections wait in the backlog
			// meanwhile.
			r.log.Warn("a connection cannot be accepted; it is tried again", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
		}
	}
}

// acceptWaiting takes the connections that are in the backlog: their senders believe that they are
// heard.
func (r *Receiver) acceptWaiting(writes context.Context, conns *sync.WaitGroup) {
	l, ok := r.opts.Listener.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return
	}
	for range listenBacklog {
		c := acceptOne(raw)
		if c == nil {
			return
		}
		r.begin(writes, c, conns)
	}
}

// listenBacklog is the most that is taken at the end. It is that of the kernel by default
// (net.core.somaxconn).
const listenBacklog = 4096

// begin serves a connection, or closes it where too many are open.
func (r *Receiver) begin(writes context.Context, c net.Conn, conns *sync.WaitGroup) {
	if r.open.Load() >= int64(r.opts.MaxConns) {
		r.refused.Add(1) // before its client can see the end
		c.Close()
		if r.untold++; time.Since(r.told) >= reportEach {
			r.log.Warn("connections are refused: as many are open as may be; raise maxConnections, "+
				"or let senders share connections", "refused", r.untold, "maxConnections", r.opts.MaxConns)
			r.told, r.untold = time.Now(), 0
		}
		return
	}
	r.accepted.Add(1)
	r.open.Add(1)
	s := newConn(r, c)
	conns.Add(1)
	go func() {
		defer conns.Done()
		defer r.open.Add(-1)
		s.serve(writes)
	}()
}

// add notes an open connection, which is told to end at once where all are.
func (r *Receiver) add(s *conn) {
	r.mu.Lock()
	stop := r.stop
	if !stop {
		r.conns[s] = struct{}{}
	}
	r.mu.Unlock()
	if stop {
		s.end(r.opts.Drain - r.opts.Drain/10)
	}
}

func (r *Receiver) remove(s *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, s)
}

// endConns tells all connections to end.
func (r *Receiver) endConns() {
	r.mu.Lock()
	r.stop = true
	open := make([]*conn, 0, len(r.conns))
	for s := range r.conns {
		open = append(open, s)
	}
	r.mu.Unlock()
	for _, s := range open {
		s.end(r.opts.Drain - r.opts.Drain/10)
	}
}

// Stats returns the counts. It never waits.
func (r *Receiver) Stats() Status {
	return Status{
		Stats: r.count.Stats(), Connections: r.open.Load(), Accepted: r.accepted.Load(),
		Refused: r.refused.Load(), Failed: r.failed.Load(), Abandoned: r.abandoned.Load(),
	}
}
