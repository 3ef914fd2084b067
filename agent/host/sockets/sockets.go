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

// prefix begins the names of all that is held: dns/PLACE/PROTOCOL/ADDRESS/NUMBER.
const prefix = "dns/"

// maxHeld is how many sockets of an address and protocol are looked for.
const maxHeld = 64

// Holder keeps files by name while the agent is away. hold.Holder is one.
type Holder interface {
	Hold(name string, f *os.File) error
	Take(name string) (*os.File, bool)
	Release(name string) error
	ReleaseUnused(prefix string) error // what was neither taken nor kept
	Names(prefix string) []string
	Holds(name string) bool
	By(name string) string
}

// Options are those of a Book. The zero value opens sockets that nobody holds.
type Options struct {
	Holder Holder     // nil: nobody holds any
	Given  []*os.File // of socket units, named UnitUDP and UnitTCP; the Book closes them
	Log    *slog.Logger
}

// Book opens sockets, and knows who holds them. Its methods may be called at the same time.
type Book struct {
	holder Holder
	log    *slog.Logger

	mu    sync.Mutex // held while files are taken
	given []*os.File
}

// New makes a Book.
func New(o Options) *Book {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Book{holder: o.Holder, log: o.Log, given: o.Given}
}

// Here is the place of the agent's own network namespace; others have the number of the namespace.
const Here = "here"

// Set is the sockets of one address.
type Set struct {
	dns.Sockets
	book  *Book
	place string
	addr  netip.AddrPort
	unit  [2]bool // UDP, TCP: systemd has given them
	taken []string

	mu   sync.Mutex
	kept []string // names
	all  bool     // everything is kept, by whoever
}

// Open returns the sockets of an address: those that there are, and what is missing of them anew;
// udp is how many there are to be for UDP then. All that there are have to be served: queries may
// wait in each. It is called in the network namespace of the place, and nothing is held yet; see
// [Set.Keep].
func (b *Book) Open(ctx context.Context, place string, addr netip.AddrPort, udp int) (*Set, error) {
	s := &Set{book: b, place: place, addr: addr}
	s.takeGiven()
	s.takeHeld()
	s.all = s.unit[0] && s.unit[1]
	had := len(s.UDP) + len(s.TCP)
	err := s.Complete(ctx, addr, udp)
	if place == Here && errors.Is(err, syscall.EADDRINUSE) && b.releaseAddr(addr) {
		err = s.Complete(ctx, addr, udp)
	}
	if err != nil {
		return nil, errors.Join(err, s.Sockets.Close())
	}
	if had > 0 {
		b.log.Info("sockets of DNS are taken over, with the queries that wait in them", "address", s.Addr(), "place", place,
			"udp", len(s.UDP), "taken", had)
	}
	return s, nil
}

// Addr is where the set listens.
func (s *Set) Addr() netip.AddrPort { return s.TCP[0].Addr().(*net.TCPAddr).AddrPort() }

// takeGiven takes the sockets of socket units that are for this address.
func (s *Set) takeGiven() {
	if s.place != Here {
		return
	}
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given = slices.DeleteFunc(b.given, func(f *os.File) bool {
		got, err := s.adopt(f, f.Name() == UnitTCP)
		if err != nil {
			return false // it may be for another address; Unused tells
		}
		s.UDP, s.TCP = append(s.UDP, got.UDP...), append(s.TCP, got.TCP...)
		s.unit[0], s.unit[1] = s.unit[0] || len(got.UDP) > 0, s.unit[1] || len(got.TCP) > 0
		_ = f.Close()
		return true
	})
}

// takeHeld takes the sockets that an earlier agent has left, of each protocol that systemd has
// given none of.
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
			_ = f.Close()
			if err != nil {
				b.log.Warn("a socket that is held is not what its name says, and is given up", "name", name, "error", err)
				_ = b.holder.Release(name)
				continue
			}
			s.UDP, s.TCP, s.taken = append(s.UDP, got.UDP...), append(s.TCP, got.TCP...), append(s.taken, name)
		}
	}
}

// errOther is for a socket of another address.
var errOther = errors.New("it is bound to another address")

// adopt makes a file a socket, if it is one for the address of the set.
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
	if err == nil {
		err = inPlace(f, s.place)
	}
	if err != nil {
		return dns.Sockets{}, errors.Join(err, got.Close())
	}
	return got, nil
}

func (s *Set) name(tcp bool, n int) string {
	return s.names() + map[bool]string{false: "udp/", true: "tcp/"}[tcp] + s.addr.String() + "/" + strconv.Itoa(n)
}

func (s *Set) names() string { return prefix + s.place + "/" }

// retryKeep is the time until what could not be kept is tried again.
const retryKeep = 10 * time.Second

// Keep has the sockets held over the end of the agent, and returns when they are, there is nobody
// who would, or ctx ends.
func (s *Set) Keep(ctx context.Context) {
	told := false
	for {
		err := s.keepAll()
		if err == nil {
			return
		}
		if !told {
			s.book.log.Warn("nobody holds the sockets of DNS while the agent is away; it tries again",
				"address", s.Addr(), "place", s.place, "error", err)
			told = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryKeep):
		}
	}
}

func (s *Set) keepAll() error {
	b := s.book
	if b.holder == nil {
		return nil
	}
	var kept []string
	keep := func(name string, f *os.File, err error) error {
		if err != nil {
			return err
		}
		defer f.Close()
		kept = append(kept, name)
		return b.holder.Hold(name, f)
	}
	var errs []error
	if !s.unit[0] {
		for i, c := range s.UDP {
			f, err := c.File()
			errs = append(errs, keep(s.name(false, i), f, err))
		}
	}
	if !s.unit[1] {
		for i, l := range s.TCP {
			f, err := l.File()
			errs = append(errs, keep(s.name(true, i), f, err))
		}
	}
	err := errors.Join(errs...)
	s.mu.Lock()
	s.kept, s.all = kept, err == nil
	s.mu.Unlock()
	return err
}

// By says who holds the sockets, for a status; "" for nobody.
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
	for _, name := range s.kept {
		by = append(by, s.book.holder.By(name))
	}
	slices.Sort(by)
	return strings.Join(slices.Compact(by), " and ")
}

// Held asks whether all sockets are held now: who asks at them waits then for the next agent.
func (s *Set) Held() bool {
	s.mu.Lock()
	kept, all := s.kept, s.all
	s.mu.Unlock()
	for _, name := range kept {
		all = all && s.book.holder.Holds(name)
	}
	return all
}

// Release has nobody hold the sockets any more. It closes none.
func (s *Set) Release() error {
	s.mu.Lock()
	kept := s.kept
	s.kept, s.all = nil, false
	s.mu.Unlock()
	var errs []error
	for _, name := range kept {
		errs = append(errs, s.book.holder.Release(name))
	}
	return errors.Join(errs...)
}

// ReleaseUnused gives up what earlier agents have left in this network namespace at addresses that
// were not opened: they are no longer configured. What socket units have given for no address is
// told, and closed.
func (b *Book) ReleaseUnused() error {
	b.mu.Lock()
	for _, f := range b.given {
		b.log.Warn("a socket of a socket unit is for no address of dns.listen; queries to it are not answered",
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

// ReleasePlaces gives up what earlier agents have left in network namespaces that are not among
// some places: sockets keep a namespace alive.
func (b *Book) ReleasePlaces(but []string) error {
	return b.release(prefix, func(name string) bool {
		place, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "/")
		return place == Here || slices.Contains(but, place)
	})
}

// ReleasePlace gives up what is held in a network namespace.
func (b *Book) ReleasePlace(place string) error {
	return b.release(prefix+place+"/", func(string) bool { return false })
}

// releaseAddr gives up what was left at an address in other places: one of them may be this
// namespace, by its number.
func (b *Book) releaseAddr(addr netip.AddrPort) (any bool) {
	_ = b.release(prefix, func(name string) bool {
		at := strings.Split(name, "/")
		other := len(at) != 5 || at[1] == Here || at[3] != addr.String()
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
