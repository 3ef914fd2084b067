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
	tlsHandshakeTime = 10 * time.Second       // maximum time of a TLS handshake
	acceptPause      = 100 * time.Millisecond // after an error of Accept, for example too many open files
	reportEach       = 10 * time.Second       // between two log lines about refused connections
)

// Options configures a [Receiver]. Only Listener and To are required.
type Options struct {
	// Listener accepts TCP or Unix connections. The receiver closes it.
	Listener net.Listener
	TLS      *tls.Config           // nil: no TLS
	To       accesslog.Destination // receives all lines
	MaxConns int                   // open connections; 0: DefaultMaxConns
	MaxLine  int                   // bytes of a line without LF, longer lines are split; 0: DefaultMaxLine
	Memory   int                   // total bytes for connections beyond 64 KiB each; 0: DefaultMemory
	Drain    time.Duration         // time for connections to end when the receiver stops; 0: DefaultDrainTime
	Log      *slog.Logger          // nil: no logs
}

// Status holds the counters of a receiver. In, Written, and the other Stats count lines since its
// creation.
type Status struct {
	accesslog.Stats
	Connections int64  `json:"connections"` // currently open
	Accepted    uint64 `json:"accepted"`
	Refused     uint64 `json:"refused,omitempty"` // closed at once, because MaxConns were open
	Failed      uint64 `json:"failed,omitempty"`  // TLS handshakes
	// bytes in the kernel that were not read within the drain time
	Abandoned uint64 `json:"abandoned,omitempty"`
}

// Receiver reads lines from many connections and writes them to one [accesslog.Destination]. Each
// connection has only one buffer: if the destination blocks, the senders block too.
type Receiver struct {
	opts   Options
	log    *slog.Logger
	memory *accesslog.Buffers
	turns  turns
	count  accesslog.Counters

	open                                 atomic.Int64
	accepted, refused, failed, abandoned atomic.Uint64

	mu       sync.Mutex // held for moments
	conns    map[*conn]struct{}
	stopping bool // new connections must end too

	reportedAt time.Time // last log line about refused connections; used by accept
	unreported int
}

// New returns a receiver. It accepts connections in [Receiver.Run].
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
	return &Receiver{opts: o, log: o.Log, memory: accesslog.NewBuffers(o.Memory), turns: make(turns, maxTurns),
		conns: map[*conn]struct{}{}}, nil
}

// Run accepts connections until ctx ends. Then it closes its side of all connections, and reads
// until the peers have closed theirs or the drain time is over. The destination must work until Run
// returns. Run returns an error only if the listener fails.
func (r *Receiver) Run(ctx context.Context) error {
	// Writes continue after ctx ends, for the drain time.
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
		r.log.Warn("senders did not close their connections in time, and their last data is lost",
			"bytes", n, "waited", r.opts.Drain)
	}
	return failed
}

var errStopped = errors.New("the receiver was stopped")

// accept accepts connections until ctx ends or the listener fails.
func (r *Receiver) accept(ctx, writes context.Context, conns *sync.WaitGroup) error {
	for {
		c, err := r.opts.Listener.Accept()
		switch {
		case err == nil:
			r.begin(writes, c, conns)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("the access-log listener was closed: %w", err)
		default:
			// Too many open files, or the peer has gone already. Connections wait in the backlog in the
			// meantime.
			r.log.Warn("cannot accept a connection; retrying", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
		}
	}
}

// acceptWaiting accepts the connections in the backlog: their senders consider them established.
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

// listenBacklog limits the connections accepted at the end. It equals the default of
// net.core.somaxconn.
const listenBacklog = 4096

// begin serves a connection, or closes it if too many are open.
func (r *Receiver) begin(writes context.Context, c net.Conn, conns *sync.WaitGroup) {
	if r.open.Load() >= int64(r.opts.MaxConns) {
		r.refused.Add(1) // before the client can see that the connection is closed
		c.Close()
		if r.unreported++; time.Since(r.reportedAt) >= reportEach {
			r.log.Warn("connections refused: the limit is reached; raise maxConnections, "+
				"or let senders share connections", "refused", r.unreported, "maxConnections", r.opts.MaxConns)
			r.reportedAt, r.unreported = time.Now(), 0
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

// add registers an open connection. While the receiver is stopping, it ends the connection at once.
func (r *Receiver) add(s *conn) {
	r.mu.Lock()
	stopping := r.stopping
	if !stopping {
		r.conns[s] = struct{}{}
	}
	r.mu.Unlock()
	if stopping {
		s.end(r.opts.Drain - r.opts.Drain/10)
	}
}

func (r *Receiver) remove(s *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, s)
}

// endConns ends all connections.
func (r *Receiver) endConns() {
	r.mu.Lock()
	r.stopping = true
	open := make([]*conn, 0, len(r.conns))
	for s := range r.conns {
		open = append(open, s)
	}
	r.mu.Unlock()
	for _, s := range open {
		s.end(r.opts.Drain - r.opts.Drain/10)
	}
}

// Stats returns the counters. It does not block.
func (r *Receiver) Stats() Status {
	return Status{
		Stats: r.count.Stats(), Connections: r.open.Load(), Accepted: r.accepted.Load(),
		Refused: r.refused.Load(), Failed: r.failed.Load(), Abandoned: r.abandoned.Load(),
	}
}
