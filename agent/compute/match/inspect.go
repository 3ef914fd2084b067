package match

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// Type URLs of the supported listener filters.
const (
	OriginalDstURL    = envoy.TypePrefix + "envoy.extensions.filters.listener.original_dst.v3.OriginalDst"
	tlsInspectorURL   = envoy.TypePrefix + "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"
	httpInspectorURL  = envoy.TypePrefix + "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector"
	proxyProtocolURL  = envoy.TypePrefix + "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol"
	inspectionTimeout = 15 * time.Second // default of listener_filters_timeout
)

// ALPN values that the HTTP inspector sets.
const (
	alpnHTTP10 = "http/1.0"
	alpnHTTP11 = "http/1.1"
	alpnH2C    = "h2c"
)

// socket is a connection while it passes through listener filters.
type socket struct {
	seen     Seen
	restored bool // the address is the original destination
	late     bool // after the timeout; remaining listener filters are skipped
	wait     *Wait
}

// newSocket returns a connection as the kernel delivers it.
func newSocket(c *Conn) *socket {
	direct := unmap(c.direct())
	return &socket{seen: Seen{Dst: unmap(c.entry()), Src: direct, Direct: direct, Local: c.Local}}
}

// inspect runs the listener filters in order, as far as the client's bytes allow. It returns
// Accepted to continue, Denied, or TimedOut.
func (s *socket) inspect(l *listenerv3.Listener, c *Conn, step *Step) Outcome {
	s.late = false
	for _, f := range l.GetListenerFilters() {
		if disabled(f.GetFilterDisabled(), s.seen.Dst, 0) {
			step.note("%s is off for port %d", filterName(f), s.seen.Dst.Port())
			continue
		}
		if out := s.run(f.GetTypedConfig(), filterName(f), l, c, step); out != Accepted {
			return out
		}
		if s.late {
			return Accepted
		}
	}
	if l.GetUseOriginalDst().GetValue() {
		s.restore(c, "use_original_dst", step) // Envoy appends this filter
	}
	return Accepted
}

func (s *socket) run(config *anypb.Any, name string, l *listenerv3.Listener, c *Conn, step *Step) Outcome {
	switch config.GetTypeUrl() {
	case OriginalDstURL:
		s.restore(c, name, step)
	case tlsInspectorURL:
		if c.First == ServerFirst {
			return s.await(name, l, step)
		}
		if c.First == TLSHello {
			s.seen.Transport, s.seen.ServerName = transportTLS, strings.ToLower(c.SNI)
			if len(c.ALPN) > 0 {
				s.seen.Protocols = c.ALPN
			}
			step.note("%s finds TLS", name)
		} else {
			step.note("%s finds no TLS", name)
		}
	case httpInspectorURL:
		if s.seen.Transport != "" {
			return Accepted
		}
		switch c.First {
		case ServerFirst:
			return s.await(name, l, step)
		case HTTP10:
			s.seen.Protocols = []string{alpnHTTP10}
		case HTTP11:
			s.seen.Protocols = []string{alpnHTTP11}
		case H2C:
			s.seen.Protocols = []string{alpnH2C}
		default:
			step.note("%s finds no HTTP", name)
			return Accepted
		}
		step.note("%s finds %s", name, s.seen.Protocols[0])
	case proxyProtocolURL:
		return s.readProxyHeader(config, name, l, c, step)
	default:
		step.note("%s is not simulated", name)
	}
	return Accepted
}

// restore evaluates the original_dst filter, which replaces the redirected address with the dialed
// one.
func (s *socket) restore(c *Conn, name string, step *Step) {
	if dst := unmap(c.Dst); dst.IsValid() && dst != s.seen.Dst {
		s.seen.Dst, s.restored = dst, true
		step.note("%s restores %s", name, dst)
	}
}

// await returns the outcome for a client that sends nothing to a filter that waits for bytes.
func (s *socket) await(name string, l *listenerv3.Listener, step *Step) Outcome {
	timeout := inspectionTimeout
	if d := l.GetListenerFiltersTimeout(); d != nil {
		timeout = d.AsDuration()
	}
	goesOn := timeout > 0 && l.GetContinueOnListenerFiltersTimeout()
	s.wait = &Wait{Filter: name, After: max(0, timeout), Closes: timeout > 0 && !goesOn}
	switch {
	case timeout <= 0:
		step.note("%s waits for bytes that do not come, without an end", name)
	case goesOn:
		step.note("%s waits for bytes; after %s Envoy skips it and the filters after it", name, timeout)
		s.late = true
		return Accepted
	default:
		step.note("%s waits for bytes that do not come; after %s Envoy closes the connection", name, timeout)
	}
	return TimedOut
}

// readProxyHeader evaluates the proxy_protocol filter. The client sends a header if the
// connection's source differs from the socket's peer.
func (s *socket) readProxyHeader(config *anypb.Any, name string, l *listenerv3.Listener, c *Conn, step *Step) Outcome {
	switch {
	case c.DirectSrc.IsValid() && c.DirectSrc != c.Src:
		s.seen.Src = unmap(c.Src)
		step.note("%s reads the source %s", name, s.seen.Src)
	case c.First == ServerFirst:
		return s.await(name, l, step)
	default:
		var m proxyprotocolv3.ProxyProtocol
		if err := config.UnmarshalTo(&m); err != nil || !m.GetAllowRequestsWithoutProxyProtocol() {
			step.note("%s finds no PROXY header and closes the connection", name)
			return Denied
		}
	}
	return Accepted
}

// MaxNesting is the maximum nesting of predicates and matchers that this package evaluates. Envoy
// is limited only by its stack.
const MaxNesting = 32

// disabled evaluates a filter_disabled predicate when the filter runs. The port is the original one
// only if an earlier filter has restored it.
func disabled(p *listenerv3.ListenerFilterChainMatchPredicate, dst netip.AddrPort, depth int) bool {
	if depth > MaxNesting {
		return false
	}
	switch r := p.GetRule().(type) {
	case *listenerv3.ListenerFilterChainMatchPredicate_OrMatch:
		for _, n := range r.OrMatch.GetRules() {
			if disabled(n, dst, depth+1) {
				return true
			}
		}
	case *listenerv3.ListenerFilterChainMatchPredicate_AndMatch:
		for _, n := range r.AndMatch.GetRules() {
			if !disabled(n, dst, depth+1) {
				return false
			}
		}
		return true
	case *listenerv3.ListenerFilterChainMatchPredicate_NotMatch:
		return !disabled(r.NotMatch, dst, depth+1)
	case *listenerv3.ListenerFilterChainMatchPredicate_AnyMatch:
		return r.AnyMatch
	case *listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange:
		return int32(dst.Port()) >= r.DestinationPortRange.GetStart() && int32(dst.Port()) < r.DestinationPortRange.GetEnd()
	}
	return false
}

// filterName returns the name of a listener filter, or its type if it has no name.
func filterName(f *listenerv3.ListenerFilter) string {
	if f.GetName() != "" {
		return clip.Value(f.GetName())
	}
	return ShortURL(f.GetTypedConfig().GetTypeUrl())
}

// ShortURL returns the last component of a type name.
func ShortURL(url string) string { return clip.Value(url[strings.LastIndexByte(url, '.')+1:]) }

// note appends a sentence to the step's note. It does nothing if the step is nil.
func (s *Step) note(format string, args ...any) {
	if s == nil {
		return
	}
	if s.Note != "" {
		s.Note += "; "
	}
	s.Note += fmt.Sprintf(format, args...)
}
