package sockets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/dns"
)

// Names of the sockets of socket units (FileDescriptorName=).
const (
	UnitUDP = "dns-udp"
	UnitTCP = "dns-tcp"
)

// prefix is the prefix of the names of held sockets: dns/NAMESPACE/PROTOCOL/ADDRESS/NUMBER.
const prefix = "dns/"

// maxHeld is the maximum number of held sockets per address and protocol.
const maxHeld = 64

// Holder keeps named files open while the agent is not running. hold.Holder implements it.
type Holder interface {
	Hold(name string, f *os.File) error
	Take(name string) (*os.File, bool)
	Release(name string) error
	ReleaseUnused(prefix string) error // releases files that were neither taken nor held again
	Names(prefix string) []string
	Holds(name string) bool
	By(name string) string
}

// Options configures a [Book]. The zero value opens sockets that are not held.
type Options struct {
	Holder Holder     // nil: sockets are not held
	Given  []*os.File // sockets of socket units, named UnitUDP and UnitTCP; the Book closes them
	Log    *slog.Logger
}

// Book opens sockets and knows which process holds them. It is safe for concurrent use.
type Book struct {
	holder Holder
	log    *slog.Logger

	mu    sync.Mutex // protects given
	given []*os.File
}

// New returns a Book.
func New(o Options) *Book {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Book{holder: o.Holder, log: o.Log, given: o.Given}
}

// Here is the name of the agent's own network namespace. The names of others are inode numbers.
const Here = "here"

// Set contains the sockets of one address.
type Set struct {
	dns.Sockets
	book      *Book
	namespace string
	addr      netip.AddrPort
	unit      [2]bool // UDP and TCP: given by systemd
	taken     []string

	mu   sync.Mutex
	held []string // names of held sockets
	all  bool     // all sockets are held
}

// Open returns the sockets of an address: existing ones, and new ones for those that are missing.
// udp is the number of UDP sockets required. The caller must serve all of them, because queries may
// wait in each. Call Open in the given network namespace. It does not hold the sockets; see
// [Set.Hold].
func (b *Book) Open(ctx context.Context, namespace string, addr netip.AddrPort, udp int) (*Set, error) {
	s := &Set{book: b, namespace: namespace, addr: addr}
	s.takeGiven()
	s.takeHeld()
	s.all = s.unit[0] && s.unit[1]
	had := len(s.UDP) + len(s.TCP)
	err := s.Complete(ctx, addr, udp)
	if namespace == Here && errors.Is(err, syscall.EADDRINUSE) && b.releaseAddr(addr) {
		err = s.Complete(ctx, addr, udp)
	}
	if err != nil {
		return nil, errors.Join(err, s.Sockets.Close())
	}
	s.grow()
	if had > 0 {
		b.log.Info("took over DNS sockets with their waiting queries", "address", s.Addr(), "namespace", namespace,
			"udp", len(s.UDP), "taken", had)
	}
	return s, nil
}

// BufferSize is the size of the receive buffer of each UDP socket in bytes. It holds about 5,000
// queries, which wait there while the agent restarts.
const BufferSize = 4 << 20

// grow enlarges the receive buffers.
func (s *Set) grow() {
	size, err := s.Grow(BufferSize)
	if err != nil || size < BufferSize {
		s.book.log.Warn(fmt.Sprintf("the receive buffer of DNS sockets has %d of %d KiB, so a restart at a high rate of "+
			"queries loses some; set net.core.rmem_max to %d with sysctl, or give the agent CAP_NET_ADMIN",
			size>>10, BufferSize>>10, BufferSize), "address", s.addr, "namespace", s.namespace, "error", err)
	}
}

// Addr returns the address of the set.
func (s *Set) Addr() netip.AddrPort { return s.TCP[0].Addr().(*net.TCPAddr).AddrPort() }

// takeGiven takes the sockets of socket units for this address.
func (s *Set) takeGiven() {
	if s.namespace != Here {
		return
	}
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given = slices.DeleteFunc(b.given, func(f *os.File) bool {
		got, err := s.adopt(f, f.Name() == UnitTCP) // in the namespace that the unit selects
		if err != nil {
			return false // it may be for another address; ReleaseUnused reports it
		}
		s.UDP, s.TCP = append(s.UDP, got.UDP...), append(s.TCP, got.TCP...)
		s.unit[0], s.unit[1] = s.unit[0] || len(got.UDP) > 0, s.unit[1] || len(got.TCP) > 0
		_ = f.Close()
		return true
	})
}

// takeHeld takes the sockets that an earlier agent left, for each protocol without a socket from
// systemd.
func (s *Set) takeHeld() {
	b := s.book
	if b.holder == nil {
		return
	}
	for i, tcp := range []bool{false, true} {
		for n := range maxHeld {
			if s.unit[i] {
				break
			}
			name := s.name(tcp, n)
			f, ok := b.holder.Take(name)
			if !ok {
				break
			}
			got, err := s.adopt(f, tcp)
			if err == nil {
				if err = checkNamespace(f, s.namespace); err != nil {
					err = errors.Join(err, got.Close())
				}
			}
			_ = f.Close()
			if err != nil {
				b.log.Warn("held socket does not match its name and is released", "name", name, "error", err)
				_ = b.holder.Release(name)
				continue
			}
			s.UDP, s.TCP, s.taken = append(s.UDP, got.UDP...), append(s.TCP, got.TCP...), append(s.taken, name)
		}
	}
}

// errOther reports a socket of another address.
var errOther = errors.New("it is bound to another address")

// adopt converts a file to a socket if it belongs to the address of the set.
func (s *Set) adopt(f *os.File, tcp bool) (dns.Sockets, error) {
	got, err := dns.FromFiles([]*os.File{f})
	if err != nil {
		return dns.Sockets{}, err
	}
	var at net.Addr
	switch {
	case tcp && len(got.TCP) == 1:
		at = got.TCP[0].Addr()
	case !tcp && len(got.UDP) == 1:
		at = got.UDP[0].LocalAddr()
	default:
		return dns.Sockets{}, errors.Join(errors.New("it is for the other protocol"), got.Close())
	}
	a, err := netip.ParseAddrPort(at.String())
	if err == nil && (a.Addr() != s.addr.Addr() || s.addr.Port() != 0 && a.Port() != s.addr.Port()) {
		err = fmt.Errorf("%w, %s", errOther, a)
	}
	if err != nil {
		return dns.Sockets{}, errors.Join(err, got.Close())
	}
	return got, nil
}

func (s *Set) name(tcp bool, n int) string {
	return s.names() + map[bool]string{false: "udp/", true: "tcp/"}[tcp] + s.addr.String() + "/" + strconv.Itoa(n)
}

func (s *Set) names() string { return prefix + s.namespace + "/" }

// retryHold is the interval of retries to hold sockets.
const retryHold = 10 * time.Second

// Hold passes the sockets to the holder, which keeps them open after the agent ends. It retries
// until all are held or ctx ends, and returns immediately if there is no holder.
func (s *Set) Hold(ctx context.Context) {
	warned := false
	for {
		err := s.holdAll()
		if err == nil {
			return
		}
		if !warned {
			s.book.log.Warn("DNS sockets cannot be held during restarts; retrying",
				"address", s.Addr(), "namespace", s.namespace, "error", err)
			warned = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryHold):
		}
	}
}

func (s *Set) holdAll() error {
	b := s.book
	if b.holder == nil {
		return nil
	}
	var held []string
	hold := func(name string, f *os.File, err error) error {
		if err != nil {
			return err
		}
		defer f.Close()
		held = append(held, name)
		return b.holder.Hold(name, f)
	}
	var errs []error
	if !s.unit[0] {
		for i, c := range s.UDP {
			f, err := c.File()
			errs = append(errs, hold(s.name(false, i), f, err))
		}
	}
	if !s.unit[1] {
		for i, l := range s.TCP {
			f, err := l.File()
			errs = append(errs, hold(s.name(true, i), f, err))
		}
	}
	err := errors.Join(errs...)
	s.mu.Lock()
	s.held, s.all = held, err == nil
	s.mu.Unlock()
	return err
}

// By returns the names of the holders for a status, or "" if the sockets are not held.
func (s *Set) By() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.all {
		return ""
	}
	by := []string{}
	if s.unit[0] || s.unit[1] {
		by = append(by, "a socket unit of systemd")
	}
	for _, name := range s.held {
		by = append(by, s.book.holder.By(name))
	}
	slices.Sort(by)
	return strings.Join(slices.Compact(by), " and ")
}

// Held reports whether all sockets are currently held, so queries wait for the next agent.
func (s *Set) Held() bool {
	s.mu.Lock()
	held, all := s.held, s.all
	s.mu.Unlock()
	for _, name := range held {
		all = all && s.book.holder.Holds(name)
	}
	return all
}

// Release releases the sockets from the holder. It does not close them.
func (s *Set) Release() error {
	s.mu.Lock()
	held := s.held
	s.held, s.all = nil, false
	s.mu.Unlock()
	var errs []error
	for _, name := range held {
		errs = append(errs, s.book.holder.Release(name))
	}
	return errors.Join(errs...)
}

// ReleaseUnused releases sockets that earlier agents left in this network namespace at addresses
// that are no longer configured. It reports and closes sockets of socket units that match no
// address.
func (b *Book) ReleaseUnused() error {
	b.mu.Lock()
	for _, f := range b.given {
		b.log.Warn("the socket of a socket unit matches no address of dns.listen; queries to it are not answered",
			"name", f.Name(), "address", addressOf(f))
		_ = f.Close()
	}
	b.given = nil
	b.mu.Unlock()
	if b.holder == nil {
		return nil
	}
	return b.holder.ReleaseUnused(prefix + Here + "/")
}

// ReleaseNamespaces releases sockets that earlier agents left in network namespaces other than but,
// because sockets keep a namespace alive.
func (b *Book) ReleaseNamespaces(but []string) error {
	return b.release(prefix, func(name string) bool {
		namespace, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "/")
		return namespace == Here || slices.Contains(but, namespace)
	})
}

// ReleaseNamespace releases the sockets held for a network namespace.
func (b *Book) ReleaseNamespace(namespace string) error {
	return b.release(prefix+namespace+"/", func(string) bool { return false })
}

// releaseAddr releases sockets that earlier agents left and that may prevent a socket at an
// address: those of the address in namespaces with a number, because one of them may be the agent's
// own, and those with its port where one of both addresses is unspecified.
func (b *Book) releaseAddr(addr netip.AddrPort) (any bool) {
	_ = b.release(prefix, func(name string) bool {
		at := strings.Split(name, "/")
		other := len(at) != 5
		if !other && at[1] != Here {
			other = at[3] != addr.String()
		} else if !other {
			left, err := netip.ParseAddrPort(at[3])
			other = err != nil || left == addr || left.Port() != addr.Port() ||
				!left.Addr().IsUnspecified() && !addr.Addr().IsUnspecified()
		}
		any = any || !other
		return other
	})
	return any
}

func (b *Book) release(of string, but func(name string) bool) error {
	if b.holder == nil {
		return nil
	}
	var errs []error
	for _, name := range b.holder.Names(of) {
		if !but(name) {
			errs = append(errs, b.holder.Release(name))
		}
	}
	return errors.Join(errs...)
}

func addressOf(f *os.File) string {
	s, err := dns.FromFiles([]*os.File{f})
	if err != nil {
		return err.Error()
	}
	defer s.Close()
	if len(s.UDP) > 0 {
		return s.UDP[0].LocalAddr().String()
	}
	return s.TCP[0].Addr().String()
}
