package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// simnet is an in-memory network for virtual time. Packets are delayed, can be lost, and do not
// cross a partition.
type simnet struct {
	mu      sync.Mutex
	hosts   map[string]*simHost
	side    map[string]int // hosts on different sides cannot reach each other
	loss    float64
	deaf    [2]string                  // the second host receives nothing from the first
	udp     func(from, to string) bool // nil: packets pass
	packets atomic.Int64
	bytes   atomic.Int64
	full    atomic.Int64
}

type simHost struct {
	net     *simnet
	addr    netip.AddrPort
	packets chan *memberlist.Packet
	conns   chan net.Conn
	ended   chan struct{}
	once    sync.Once
}

func newSimnet() *simnet { return &simnet{hosts: map[string]*simHost{}, side: map[string]int{}} }

func (s *simnet) host(addr string) *simHost {
	h := &simHost{net: s, addr: netip.MustParseAddrPort(addr), packets: make(chan *memberlist.Packet, 4096),
		conns: make(chan net.Conn), ended: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[addr] = h
	return h
}

// reach returns the host at an address, and whether a partition blocks it.
func (s *simnet) reach(from, to string) (h *simHost, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts[to], s.side[from] != s.side[to] || s.deaf == [2]string{from, to}
}

func (s *simnet) lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return rand.Float64() < s.loss
}

// passes reports whether packets from one host reach another one.
func (s *simnet) passes(from, to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.udp == nil || s.udp(from, to)
}

// filter sets which packets pass. Streams are not affected. Nil: all.
func (s *simnet) filter(passes func(from, to string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.udp = passes
}

func simDelay() time.Duration {
	return 200*time.Microsecond + time.Duration(rand.IntN(200))*time.Microsecond
}

func (h *simHost) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return h.addr.Addr().AsSlice(), int(h.addr.Port()), nil
}
func (h *simHost) PacketCh() <-chan *memberlist.Packet { return h.packets }
func (h *simHost) StreamCh() <-chan net.Conn           { return h.conns }
func (h *simHost) WriteTo(b []byte, addr string) (time.Time, error) {
	return h.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (h *simHost) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	stream := len(b) > maxDatagram || strings.HasPrefix(a.Name, viaStream)
	h.net.packets.Add(1)
	h.net.bytes.Add(int64(len(b)))
	d := simDelay()
	if stream {
		d *= 3
	} else if h.net.lost() || !h.net.passes(h.addr.String(), a.Addr) {
		return time.Now(), nil
	}
	p := &memberlist.Packet{Buf: slices.Clone(b), From: net.UDPAddrFromAddrPort(h.addr)}
	time.AfterFunc(d, func() {
		to, cut := h.net.reach(h.addr.String(), a.Addr)
		if to == nil || cut {
			return
		}
		p.Timestamp = time.Now()
		select {
		case to.packets <- p:
		case <-to.ended:
		default:
			h.net.full.Add(1)
		}
	})
	return time.Now(), nil
}

func (h *simHost) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return h.DialTimeout(a.Addr, timeout)
}

func (h *simHost) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, cut := h.net.reach(h.addr.String(), addr)
	if cut {
		select {
		case <-time.After(min(timeout, dialTimeout)):
		case <-h.ended:
		}
		return nil, errors.New("timeout")
	}
	if to == nil {
		return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	}
	<-time.After(2 * simDelay())
	a, b := net.Pipe()
	select {
	case to.conns <- b:
		return a, nil
	case <-to.ended:
		return nil, errors.New("connection refused")
	case <-time.After(timeout):
		return nil, errors.New("timeout")
	}
}

func (h *simHost) Shutdown() error {
	h.once.Do(func() {
		close(h.ended)
		h.net.mu.Lock()
		defer h.net.mu.Unlock()
		if h.net.hosts[h.addr.String()] == h {
			delete(h.net.hosts, h.addr.String())
		}
	})
	return nil
}

// memory is a Storage that survives restarts of a node.
type memory struct {
	mu     sync.Mutex
	values map[string]engine.Op
	writes int
	err    error
}

func newMemory() *memory { return &memory{values: map[string]engine.Op{}} }

func (m *memory) Load() ([]engine.Op, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []engine.Op
	for _, op := range m.values {
		out = append(out, op)
	}
	return out, nil
}

func (m *memory) Write(ops []engine.Op) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	m.writes++
	for _, op := range ops {
		if op.Value == nil {
			delete(m.values, op.Bucket+"/"+op.Key)
		} else {
			m.values[op.Bucket+"/"+op.Key] = op
		}
	}
	return nil
}

// running is a running node.
type running struct {
	*Node
	stop func()
}

var testKey = []byte("0123456789abcdef0123456789abcdef")

// run starts a node.
func run(t testing.TB, o Options) running {
	t.Helper()
	if o.Cluster == "" {
		o.Cluster = "test"
	}
	if o.Keys == nil && !o.Insecure {
		o.Keys = [][]byte{testKey}
	}
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	select {
	case <-n.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	return running{n, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}}
}

func simAddr(i int) string { return fmt.Sprintf("10.0.%d.%d:7946", i/200, i%200+1) }

func simID(i int) engine.NodeID { return engine.NodeID{byte(i >> 8), byte(i), 0xaa} }

// simNode starts node i of a network. Its seeds are the first three nodes.
func simNode(t *testing.T, s *simnet, i int, store Storage, addr string) running {
	return run(t, simOptions(s, i, store, addr))
}

func simOptions(s *simnet, i int, store Storage, addr string) Options {
	return Options{Self: simID(i), Name: fmt.Sprint("node-", i), Storage: store,
		transport: func() memberlist.NodeAwareTransport { return s.host(addr) },
		Seeds:     func() []string { return []string{simAddr(0), simAddr(1), simAddr(2)} }}
}

func stopAll(nodes []running) {
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(n.stop)
	}
	wg.Wait()
}

// alive returns the number of members that are alive according to n, including itself.
func alive(n running) (k int) {
	for _, m := range n.Members() {
		if m.State == "alive" {
			k++
		}
	}
	return k
}

func agree(nodes []running) bool {
	for _, n := range nodes {
		if n.Stats().Root != nodes[0].Stats().Root {
			return false
		}
	}
	return true
}
