package match

import (
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// Listener finds the filter chain of a connection. It is built once from a message, which must not
// be modified, and is immutable.
type Listener struct {
	Message *listenerv3.Listener
	index   *chainIndex
	matcher *matchTree     // used instead of index if not nil
	byName  map[string]int // chains for matcher
}

// NewListener returns the index of a listener. It accepts any message and ignores what Envoy would
// reject.
func NewListener(m *listenerv3.Listener) *Listener {
	l := &Listener{Message: m}
	if m.GetFilterChainMatcher() == nil {
		l.index = IndexChains(m.GetFilterChains())
		return l
	}
	l.matcher = compileMatcher(m.GetFilterChainMatcher(), 0)
	l.byName = make(map[string]int, len(m.GetFilterChains()))
	for i, c := range m.GetFilterChains() {
		if _, twice := l.byName[c.GetName()]; !twice {
			l.byName[c.GetName()] = i
		}
	}
	return l
}

// Match is the filter chain that a listener selects.
type Match struct {
	// Outcome is Accepted if there is a chain. Otherwise it is NoChain, or the result of the listener
	// filters: Denied or TimedOut.
	Outcome Outcome
	// Index is the chain's index in filter_chains, DefaultIndex for the default chain, or NoIndex.
	Index int
	Chain *listenerv3.FilterChain
	// At is LevelChain, or the level at which nothing matched. For the default chain, it is the level
	// that led to it.
	At   Level
	Seen Seen // the input of the selection
}

// Find selects the filter chain for a connection that this listener accepts and does not pass to
// another listener.
func (l *Listener) Find(c *Conn) Match {
	s := newSocket(c)
	if out := s.inspect(l.Message, c, nil); out != Accepted {
		return Match{Outcome: out, Index: NoIndex, At: LevelInspection, Seen: s.seen}
	}
	s.setTransport()
	return l.choose(&s.seen, nil)
}

// FindSeen is like Find, but starts after the listener filters.
func (l *Listener) FindSeen(s *Seen) Match { return l.choose(s, nil) }

// setTransport sets Envoy's default transport protocol if no listener filter has detected one.
func (s *socket) setTransport() {
	if s.seen.Transport == "" {
		s.seen.Transport = transportRaw
	}
}

// choose finds the chain, and records the path if steps is not nil.
func (l *Listener) choose(s *Seen, steps *[]Step) Match {
	m := Match{Seen: *s}
	if l.index != nil {
		var rec *levels
		if steps != nil {
			rec = &levels{steps: steps, seen: s}
		}
		m.Index, m.At = l.index.find(s, rec)
	} else {
		m.Index, m.At = l.byMatcher(s, steps)
	}
	if m.Index >= 0 {
		m.Chain = l.Message.GetFilterChains()[m.Index]
		return m
	}
	if d := l.Message.GetDefaultFilterChain(); d != nil && m.Index != closedIndex {
		m.Chain, m.Index = d, DefaultIndex
		return m
	}
	m.Outcome, m.Index = NoChain, NoIndex
	return m
}

// closedIndex marks a connection that is closed even if there is a default chain.
const closedIndex = -3

func (l *Listener) byMatcher(s *Seen, steps *[]Step) (int, Level) {
	var note func(Step)
	if steps != nil {
		note = func(st Step) { *steps = append(*steps, st) }
	}
	action := l.matcher.evaluate(s, note)
	if action == nil {
		return NoIndex, LevelMatcher
	}
	name, ok := ChainNameOf(action)
	if i, found := l.byName[name]; ok && found {
		return i, LevelChain
	}
	// Envoy uses the default chain if a matcher finds nothing, but not if it names a chain that does
	// not exist.
	return closedIndex, LevelMatcher
}

// sockets is Envoy's table of TCP listener sockets, which it uses to pass connections on.
type sockets struct {
	all   map[netip.AddrPort]int // index of the listener, including those that do not bind
	bound map[netip.AddrPort]int
}

// add inserts a listener's addresses. Of duplicate addresses the first one stays, because Envoy
// rejects the second.
func (t *sockets) add(i int, l *listenerv3.Listener) {
	binds := BoundToPort(l)
	for _, a := range listenerAddresses(l) {
		t.enter(i, a, binds)
	}
}

// listenerSocket is an address at which a listener can receive connections.
type listenerSocket struct {
	addr   netip.AddrPort
	compat bool // an IPv6 socket that also accepts IPv4
}

// listenerAddresses returns the IP addresses of a TCP listener.
func listenerAddresses(l *listenerv3.Listener) []listenerSocket {
	var out []listenerSocket
	add := func(a *corev3.SocketAddress) {
		if addr, err := netip.ParseAddr(a.GetAddress()); err == nil && a.GetProtocol() == corev3.SocketAddress_TCP &&
			a.GetPortValue() <= 65535 {
			out = append(out, listenerSocket{netip.AddrPortFrom(addr.WithZone(""), uint16(a.GetPortValue())), a.GetIpv4Compat()})
		}
	}
	add(l.GetAddress().GetSocketAddress())
	for _, a := range l.GetAdditionalAddresses() {
		add(a.GetAddress().GetSocketAddress())
	}
	return out
}

func BoundToPort(l *listenerv3.Listener) bool {
	return (l.GetBindToPort() == nil || l.GetBindToPort().GetValue()) &&
		//lint:ignore SA1019 Envoy still reads it
		(l.GetDeprecatedV1().GetBindToPort() == nil || l.GetDeprecatedV1().GetBindToPort().GetValue())
}

func (t *sockets) enter(i int, a listenerSocket, binds bool) {
	if t.all == nil {
		t.all, t.bound = map[netip.AddrPort]int{}, map[netip.AddrPort]int{}
	}
	put := func(addr netip.AddrPort) {
		if _, taken := t.all[addr]; !taken {
			t.all[addr] = i
		}
		if _, taken := t.bound[addr]; binds && !taken {
			t.bound[addr] = i
		}
	}
	put(a.addr)
	if a.compat && a.addr.Addr().Is6() {
		v4 := a.addr.Addr().Unmap()
		if v4 == netip.IPv6Unspecified() {
			v4 = netip.IPv4Unspecified()
		}
		put(netip.AddrPortFrom(v4, a.addr.Port()))
	}
}

// lookUp finds the listener of an address: the exact one, or else the wildcard of its family.
func lookUp(m map[netip.AddrPort]int, a netip.AddrPort) (int, bool) {
	a = unmap(a)
	if i, ok := m[a]; ok {
		return i, true
	}
	wildcard := netip.IPv6Unspecified()
	if a.Addr().Is4() {
		wildcard = netip.IPv4Unspecified()
	}
	i, ok := m[netip.AddrPortFrom(wildcard, a.Port())]
	return i, ok
}

// outcomeText describes a match.
func (m *Match) outcomeText() string {
	switch {
	case m.Outcome == Denied:
		return "a listener filter closes the connection"
	case m.Outcome == TimedOut:
		return "the listener filters wait for bytes that the client does not send"
	case m.Outcome == NoChain && m.At == LevelMatcher:
		return "the filter chain matcher leads to no filter chain: Envoy closes the connection"
	case m.Outcome == NoChain:
		return fmt.Sprintf("no filter chain fits at %s: Envoy closes the connection", m.At)
	}
	return ""
}
