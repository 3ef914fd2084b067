package forward

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	DefaultCacheBytes = 4 << 20
	defaultInFlight   = 10000
	maxInFlightLimit  = 1 << 20
)

// Options says whom a Forwarder asks, and how. The zero value asks the name servers of
// /etc/resolv.conf.
type Options struct {
	// Servers are asked in this order. Where there are none, those of ResolvConf are, and that file is
	// watched.
	Servers []netip.AddrPort
	// ResolvConf is the path of the file; "" means /etc/resolv.conf.
	ResolvConf string
	// CacheBytes bounds the memory of cached answers; 0 means 4 MiB, less than 0 none at all.
	CacheBytes int
	// InFlight bounds the questions that are asked at the same time; 0 means 10,000.
	InFlight int
	// Mark is set on all sockets (SO_MARK), so that a redirection of port 53 exempts them; 0 sets
	// none.
	Mark uint32
	// Own reports whether an address is one that this process listens on: such a server is refused.
	// nil knows of none.
	Own func(netip.AddrPort) bool
	// Logger is told about servers that change, fail and answer again; nil is silent.
	Logger *slog.Logger

	Clock  func() int64 // nanoseconds; nil is the monotonic clock
	Timing Timing
	Port   uint16 // of the servers of ResolvConf; 0 is 53
}

// Timing is how long things may take. Tests shorten it.
type Timing struct {
	Tick     time.Duration // between two looks at what is due
	wait     time.Duration // the shortest time until the next server is asked
	waitTCP  time.Duration
	allTried time.Duration // in which each server is asked once
	// until a stale answer is given (RFC 8767 section 5), or a failure if no server has answered
	// lately
	client    time.Duration
	total     time.Duration // until a failure is
	Debounce  time.Duration // after a change of resolv.conf
	Poll      time.Duration // of resolv.conf, where its changes are not noticed otherwise
	dial      time.Duration // of a TCP connection
	idle      time.Duration // after which one is closed
	socketAge time.Duration
}

func DefaultTiming() Timing {
	return Timing{
		Tick: 50 * time.Millisecond, wait: 150 * time.Millisecond, waitTCP: 500 * time.Millisecond, allTried: 2 * time.Second,
		client: 1700 * time.Millisecond, total: 4 * time.Second, // with a tick, 1.8 s at the most
		Debounce: 200 * time.Millisecond, Poll: 5 * time.Second, dial: 2 * time.Second, idle: 10 * time.Second,
		socketAge: 10 * time.Second,
	}
}

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if len(o.Servers) > MaxServers {
		errs = append(errs,
			fmt.Errorf("servers: %d are given, at most %d are allowed; remove some", len(o.Servers), MaxServers))
	}
	for i, s := range o.Servers {
		switch {
		case !s.IsValid() || s.Port() == 0 || s.Addr().IsUnspecified() || s.Addr().IsMulticast():
			errs = append(errs, fmt.Errorf("servers[%d]: %s is not the address and port of a server", i, s))
		case o.Own != nil && o.Own(s):
			errs = append(errs,
				fmt.Errorf("servers[%d]: %s is an address that this process itself listens on; name the server that it should ask",
					i, s))
		}
	}
	if o.InFlight < 0 || o.InFlight > maxInFlightLimit {
		errs = append(errs,
			fmt.Errorf("inFlight: %d; 0 to %d are allowed, 0 being %d", o.InFlight, maxInFlightLimit, defaultInFlight))
	}
	return errors.Join(errs...)
}

// Forwarder asks name servers what no table answers, and keeps their answers. It is safe for
// concurrent use, and one serves all listeners.
type Forwarder struct {
	Opts    Options
	timing  Timing
	clock   func() int64
	log     *slog.Logger
	dialer  net.Dialer
	cache   *cache
	workers sync.Pool // of *worker
	wake    chan struct{}
	started chan struct{} // closed by Run
	wg      sync.WaitGroup
	trusted atomic.Bool // the servers' AD bit is passed on

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before and after
	rand    *rand.ChaCha8
	slots   *slots
	set     *serverSet
	turn    int
	pace    pace
	locals  map[netip.AddrPort]*channel // by the local address of the socket
	counts  forwardCounts
	problem string // why there are no servers
	search  []string
	ndots   int
}

// pace is how often Run looks at what is due.
type pace int

const (
	paceNone pace = iota
	paceSlow      // sockets have to be closed some time
	paceFast      // questions are in flight
)

// Replier sends a reply to a client. It is called once for each accepted query, from a goroutine of
// the forwarder, and must not block. The wire is only valid during the call.
type Replier interface {
	Reply(to ReplyTo, wire []byte)
}

// ReplyTo is where a reply goes. The forwarder reads addr and max; the rest is for the listener
// alone.
type ReplyTo struct {
	Via     Replier
	Addr    netip.AddrPort // of the client
	Local   netip.Addr     // the address that the query was sent to
	At      int64          // when it came, by the forwarder's clock
	Tcp     bool
	Sampled bool // see ServerOptions.Sampled
	Max     int  // bytes that the reply may have: by the client's EDNS for UDP, 65535 for TCP
}

// New makes a forwarder. It answers from its cache, and asks others while Run runs. A
// resolv.conf that names no server is no error: one may come.
func New(opts Options) (*Forwarder, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if opts.Timing == (Timing{}) {
		opts.Timing = DefaultTiming()
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.ResolvConf == "" {
		opts.ResolvConf = "/etc/resolv.conf"
	}
	if opts.Port == 0 {
		opts.Port = dnsPort
	}
	if opts.InFlight == 0 {
		opts.InFlight = defaultInFlight
	}
	if opts.CacheBytes == 0 {
		opts.CacheBytes = DefaultCacheBytes
	}
	if opts.Clock == nil {
		start := time.Now()
		opts.Clock = func() int64 { return int64(time.Since(start)) }
	}
	var seed [32]byte
	if _, err := crand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("random IDs: %w", err)
	}
	f := &Forwarder{
		Opts: opts, timing: opts.Timing, clock: opts.Clock, log: opts.Logger,
		dialer: net.Dialer{ControlContext: controlMark(opts.Mark), Timeout: opts.Timing.dial},
		cache:  newCache(opts.CacheBytes), wake: make(chan struct{}, 1), started: make(chan struct{}),
		rand: rand.NewChaCha8(seed), set: &serverSet{}, locals: map[netip.AddrPort]*channel{},
	}
	f.slots = newSlots(opts.InFlight, int64(opts.Timing.Tick), f.wakeUp)
	f.workers.New = func() any { return &worker{in: make([]byte, receiveSize)} }
	if opts.Mark != 0 {
		if err := f.probeMark(); err != nil {
			return nil, err
		}
	}
	if len(opts.Servers) > 0 {
		f.Apply(opts.Servers, Conf{}, "")
		return f, nil
	}
	f.reload()
	return f, nil
}

// probeMark finds out whether marks can be set, rather than with the first query.
func (f *Forwarder) probeMark() error {
	c, err := f.dialer.Dial("udp", "127.0.0.1:53")
	if err != nil {
		return err
	}
	return c.Close()
}

// Started is closed once Run asks: until then queries fail.
func (f *Forwarder) Started() <-chan struct{} { return f.started }

// Run asks until the context ends, and returns when all of its goroutines and sockets have gone.
// Queries in flight then get no answer. Call it once.
func (f *Forwarder) Run(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	f.mu.Unlock()
	close(f.started)
	if len(f.Opts.Servers) == 0 {
		f.wg.Add(1)
		go f.watch(ctx)
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-f.wake:
		case <-timer.C:
		}
		switch f.Look() {
		case paceFast:
			timer.Reset(f.timing.Tick)
		case paceSlow:
			timer.Reset(max(f.timing.Tick, time.Second))
		case paceNone:
			timer.Stop()
		}
	}
	f.stop()
	f.wg.Wait()
	return nil
}

// Look does what is due, and says when to look again.
func (f *Forwarder) Look() pace {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := f.slots.due(now); s != nil; s = f.slots.due(now) {
		f.expire(s, now)
	}
	f.pace = paceNone
	for _, sv := range f.set.servers {
		for _, u := range sv.sockets {
			if u != nil && now-u.opened >= int64(f.timing.socketAge) {
				f.retire(u)
			}
		}
	}
	if len(f.locals) > 0 {
		f.pace = paceSlow
	}
	if f.slots.used > 0 {
		f.pace = paceFast
	}
	return f.pace
}

// hurry makes Run look as often as questions in flight need it. The caller holds the lock.
func (f *Forwarder) hurry() {
	if f.pace == paceFast {
		return
	}
	f.pace = paceFast
	f.wakeUp()
}

// wakeUp makes Run look now.
func (f *Forwarder) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// stop closes all sockets, and forgets who waits.
func (f *Forwarder) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ctx = nil
	for c := range f.slots.chunks {
		for i := range f.slots.chunks[c] {
			if s := &f.slots.chunks[c][i]; s.asking {
				f.detach(s, nil, f.clock())
				f.slots.releaseWaiters(f.slots.takeWaiters(s))
				f.slots.release(s)
			}
		}
	}
	for _, sv := range f.set.servers {
		f.dismiss(sv)
	}
}

// Sockets returns how many sockets to servers are open.
func (f *Forwarder) Sockets() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.locals)
}

// dismiss closes the sockets to a server, as soon as nothing is in flight on them.
func (f *Forwarder) dismiss(sv *server) {
	for _, u := range sv.sockets {
		if u != nil {
			f.retire(u)
		}
	}
	for _, st := range sv.streams {
		f.retireStream(st)
	}
}

// Now is the clock of the cache, in nanoseconds of no particular beginning. A listener reads it
// once for a batch.
func (f *Forwarder) Now() int64 { return f.clock() }

func (f *Forwarder) random() uint64 { return f.rand.Uint64() }
