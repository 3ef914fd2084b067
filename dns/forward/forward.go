package forward

import (
	"context"
	crand "crypto/rand"
	"crypto/x509"
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

// Options configures a Forwarder. The zero value uses the name servers of /etc/resolv.conf.
type Options struct {
	// Servers are the name servers in order of preference. If there are none, the Forwarder uses
	// those of ResolvConf and watches the file.
	Servers []netip.AddrPort
	// TrustAD forwards the AD bit of Servers and of the servers of Routes. In a resolv.conf, the
	// option trust-ad does.
	TrustAD bool
	// Routes are the servers for some domains; see [Forwarder.Configure].
	Routes []Route
	// RootCAs verify servers that are queried over TLS; nil means those of the host.
	RootCAs *x509.CertPool
	// ResolvConf is the path of the file; "" means /etc/resolv.conf.
	ResolvConf string
	// CacheBytes limits the memory for cached answers. 0 means 4 MiB, and a negative value
	// disables the cache.
	CacheBytes int
	// InFlight limits the number of questions in flight; 0 means 10,000.
	InFlight int
	// Mark is set on all sockets (SO_MARK), so that a redirection of port 53 can exempt them. 0
	// sets no mark.
	Mark uint32
	// Own reports whether this process listens on an address. Such servers are rejected. It may
	// be nil.
	Own func(netip.AddrPort) bool
	// Changed is called after each change of the servers. It must not block or use the forwarder.
	// It may be nil.
	Changed func()
	// Logger gets changes of servers and their state; nil discards them.
	Logger *slog.Logger

	Clock  func() int64 // in nanoseconds; nil means the monotonic clock
	Timing Timing
	Port   uint16 // of the servers in ResolvConf; 0 means 53
}

// Timing has the time limits. Tests shorten them.
type Timing struct {
	Tick     time.Duration // interval of RunDue while questions are in flight
	wait     time.Duration // minimum time before the next server is asked
	waitTCP  time.Duration
	allTried time.Duration // time in which each server is asked once
	// Time until a client gets a stale answer (RFC 8767 section 5), or a failure if all servers
	// have failed.
	client    time.Duration
	total     time.Duration // time until a client gets a failure
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

// Validate returns an error for invalid options.
func (o *Options) Validate() error {
	var errs []error
	errs = append(errs, validateServers(o.Servers, o.Own))
	if o.InFlight < 0 || o.InFlight > maxInFlightLimit {
		errs = append(errs,
			fmt.Errorf("inFlight: %d is out of range; 0 to %d are allowed (0 means %d)",
				o.InFlight, maxInFlightLimit, defaultInFlight))
	}
	return errors.Join(errs...)
}

// validateServers returns an error for a list with an invalid server.
func validateServers(list []netip.AddrPort, own func(netip.AddrPort) bool) error {
	var errs []error
	if len(list) > MaxServers {
		errs = append(errs, fmt.Errorf("servers: has %d entries, at most %d are allowed", len(list), MaxServers))
	}
	for i, s := range list {
		switch {
		case !s.IsValid() || s.Port() == 0 || s.Addr().IsUnspecified() || s.Addr().IsMulticast():
			errs = append(errs, fmt.Errorf("servers[%d]: %s is not the address and port of a server", i, s))
		case own != nil && own(s):
			errs = append(errs,
				fmt.Errorf("servers[%d]: %s is an address of this process; set it to another name server", i, s))
		}
	}
	return errors.Join(errs...)
}

// Forwarder forwards questions to name servers and caches the answers. It is safe for concurrent
// use, also by several listeners.
type Forwarder struct {
	Opts           Options
	timing         Timing
	clock          func() int64
	log            *slog.Logger
	dialer         net.Dialer
	cache          *cache
	workers        sync.Pool // of *worker
	wake           chan struct{}
	started        chan struct{} // closed by Run
	wg             sync.WaitGroup
	unknownOrigins atomic.Uint64
	current        atomic.Pointer[[]netip.AddrPort] // the servers

	protection atomic.Pointer[Protection]
	dropped    [drops]atomic.Uint64 // addresses by reason

	mu          sync.Mutex
	ctx         context.Context // of Run; nil when Run is not running
	rand        *rand.ChaCha8
	slots       *slots
	set         *serverSet // for names without a route
	routes      *routes
	turn        int
	pace        pace
	locals      map[localAddr]*channel // by local address of the socket
	counts      forwardCounts
	problem     string // why there are no servers; may be ""
	networks    []*Origins
	lastOrigin  uint32
	pastOrigins ServerStats // of origins that were dropped
	search      []string
	ndots       int
}

// pace is how often Run handles due work.
type pace int

const (
	paceNone pace = iota
	paceSlow      // open sockets must be closed at some time
	paceFast      // questions are in flight
)

// Replier sends a reply to a client. The forwarder calls Reply once per accepted query, from its
// own goroutines. Reply must not block, and must not retain wire.
type Replier interface {
	Reply(to ReplyTo, wire []byte)
}

// ReplyTo is the destination of a reply. The forwarder reads Via, Addr, Origin, Ahead, and Max, and
// sets Server; the other fields are for the listener.
type ReplyTo struct {
	Via     Replier
	Origin  *Origin        // the server that the client queried; nil: the servers of the config
	Server  netip.AddrPort // the server that answered
	Addr    netip.AddrPort // of the client
	Local   netip.Addr     // the address that the query was sent to
	At      int64          // arrival time by the forwarder's clock
	Tcp     bool
	Sampled bool   // see ServerOptions.Sampled
	Real    bool   // the client is a proxy that asks for real addresses, not for those of the mesh
	Dropped Drop   // why addresses are missing in the reply; set by the forwarder
	Ahead   int    // queries of the same client that wait already; see [Full]
	Share   uint32 // the counters of the client in the listener
	Max     int    // maximum length of the reply: from the client's EDNS for UDP, 65535 for TCP
}

// New returns a forwarder. It answers from its cache, and forwards queries while Run runs. A
// resolv.conf without name servers is not an error, because they may be added later.
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
		rand: rand.NewChaCha8(seed), set: &serverSet{}, routes: &routes{}, locals: map[localAddr]*channel{},
	}
	f.current.Store(new([]netip.AddrPort))
	f.slots = newSlots(opts.InFlight, int64(opts.Timing.Tick), f.wakeUp)
	f.workers.New = func() any { return &worker{in: make([]byte, receiveSize)} }
	if opts.Mark != 0 {
		if err := f.probeMark(); err != nil {
			return nil, err
		}
	}
	if err := f.Configure(opts.Routes, opts.TrustAD); err != nil {
		return nil, err
	}
	if len(opts.Servers) > 0 {
		f.Apply(opts.Servers, Conf{TrustAD: opts.TrustAD}, "")
		return f, nil
	}
	f.reload()
	return f, nil
}

// probeMark checks whether the process may set marks.
func (f *Forwarder) probeMark() error {
	c, err := f.dialer.Dial("udp", "127.0.0.1:53")
	if err != nil {
		return err
	}
	return c.Close()
}

// Started returns a channel that is closed when Run has started. Until then, queries fail.
func (f *Forwarder) Started() <-chan struct{} { return f.started }

// Run forwards queries until ctx ends, and returns when its goroutines have ended and its sockets
// are closed. Queries in flight then get no answer. Call Run only once.
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
		switch f.RunDue() {
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

// RunDue handles expired timers, and returns how often to call it.
func (f *Forwarder) RunDue() pace {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := f.slots.due(now); s != nil; s = f.slots.due(now) {
		f.expire(s, now)
	}
	f.pace = paceNone
	for sv := range f.servers {
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

// speedUp makes Run handle timers at the pace of questions in flight. The caller holds the lock.
func (f *Forwarder) speedUp() {
	if f.pace == paceFast {
		return
	}
	f.pace = paceFast
	f.wakeUp()
}

// wakeUp makes Run handle timers immediately.
func (f *Forwarder) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// stop closes all sockets and drops the waiters.
func (f *Forwarder) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ctx = nil
	f.eachAsked(func(s *slot) {
		f.detach(s, nil, f.clock())
		f.slots.releaseWaiters(f.slots.takeWaiters(s))
		f.slots.release(s)
	})
	for sv := range f.servers {
		f.dismiss(sv)
	}
}

// Sockets returns the number of open sockets to servers.
func (f *Forwarder) Sockets() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.locals)
}

// dismiss retires the sockets to a server.
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

// Now returns the time of the cache's clock, in nanoseconds from an arbitrary start. A listener
// reads it once per batch.
func (f *Forwarder) Now() int64 { return f.clock() }

func (f *Forwarder) random() uint64 { return f.rand.Uint64() }
