package passthrough_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// This file models Envoy's handling of a connection according to its documentation and sources: the
// listener filters, then the levels of filter chain selection, each evaluated once, then the
// virtual host. It shares no code with the plugin.

// First bytes of a client.
const (
	sendsTLS     = "tls"
	sendsHTTP1   = "http/1.1"
	sendsHTTP2   = "h2c"
	sendsHTTP10  = "http/1.0"
	sendsBytes   = "bytes"
	sendsNothing = "nothing" // the server speaks first
)

type conn struct {
	to     netip.AddrPort
	sends  string
	name   string // server name of TLS, Host of HTTP
	missed bool   // the HTTP inspector does not recognize the request
}

func (c conn) String() string { return fmt.Sprintf("%s %s %q", c.to, c.sends, c.name) }

// verdict is the result for a connection.
type verdict struct {
	chain, cluster string
	closedAt       string // the level without a match; "" if a chain matches
	refused        bool   // a virtual host responds directly
}

func (v verdict) allowed() bool { return v.cluster != "" }

// envoy is a proxy with the passthrough listeners.
type envoy struct {
	listeners map[bool]*listener // by IPv6
	virtual   map[bool]*listener // those for virtual addresses, by IPv6
	clusters  map[string]*clusterv3.Cluster
	real      *real
}

type listener struct {
	message *listenerv3.Listener
	ends    map[*listenerv3.FilterChain]end
	// leaves are the chains by port, prefix, server name, transport protocol, and application
	// protocol.
	leaves map[uint32]map[netip.Prefix]map[string]map[string]map[string]*listenerv3.FilterChain
}

// newEnvoy loads the config of the proxy "d". It fails the test if Envoy would reject it.
func newEnvoy(t testing.TB, docs string) (*envoy, []string) {
	t.Helper()
	p := kindtest.Generator(t, []byte(docs), "d")()
	var warnings []string
	for _, w := range p.Warnings {
		if w.Resource.Kind != "MeshPassthrough" {
			t.Fatalf("%s: %s", w.Resource, w.Reason)
		}
		warnings = append(warnings, w.Resource.Name+": "+w.Reason)
	}
	e := &envoy{listeners: map[bool]*listener{}, virtual: map[bool]*listener{}, clusters: map[string]*clusterv3.Cluster{},
		real: newReal(t, p)}
	for _, r := range p.Sealed.Resources[draft.Rank(draft.TypeCluster)] {
		c := &clusterv3.Cluster{}
		if err := proto.Unmarshal(r.Body(), c); err != nil {
			t.Fatal(err)
		}
		e.clusters[c.Name] = c
	}
	for _, r := range p.Sealed.Resources[draft.Rank(draft.TypeListener)] {
		l := &listener{message: &listenerv3.Listener{}}
		if err := proto.Unmarshal(r.Body(), l.message); err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(l.message.Name, "outbound:passthrough:"); ok {
			if err := l.load(e); err != nil {
				t.Fatalf("Envoy rejects %s: %v", l.message.Name, err)
			}
			e.listeners[name == "ipv6"] = l
		} else if name, ok := strings.CutPrefix(l.message.Name, "outbound:virtual:"); ok {
			if err := l.load(e); err != nil {
				t.Fatalf("Envoy rejects %s: %v", l.message.Name, err)
			}
			e.virtual[name == "ipv6"] = l
		}
	}
	return e, warnings
}

// load builds the tree of chains and performs Envoy's validation.
func (l *listener) load(e *envoy) error {
	l.leaves = map[uint32]map[netip.Prefix]map[string]map[string]map[string]*listenerv3.FilterChain{}
	l.ends = map[*listenerv3.FilterChain]end{}
	names := map[string]bool{}
	for _, c := range l.message.FilterChains {
		if c.Name != "" && names[c.Name] {
			return fmt.Errorf("two chains are named %s", c.Name)
		}
		names[c.Name] = true
		m := c.FilterChainMatch
		var prefixes []netip.Prefix
		for _, r := range m.GetPrefixRanges() {
			a, err := netip.ParseAddr(r.AddressPrefix)
			if err != nil || a.Zone() != "" || int(r.PrefixLen.GetValue()) > a.BitLen() {
				return fmt.Errorf("%s: bad range %v", c.Name, r)
			}
			if r.PrefixLen.GetValue() == 0 {
				return fmt.Errorf("%s: the precedence of /0 and no range is not specified", c.Name)
			}
			prefixes = append(prefixes, netip.PrefixFrom(a, int(r.PrefixLen.GetValue())).Masked())
		}
		for _, n := range m.GetServerNames() {
			if strings.Contains(n, "*") && !strings.HasPrefix(n, "*.") {
				return fmt.Errorf("%s: partial wildcard %s", c.Name, n)
			}
		}
		if err := l.add(c, prefixes); err != nil {
			return err
		}
		last := len(c.Filters) - 1
		if last != 0 && !resolves(c.Filters) {
			return fmt.Errorf("%s has %d filters", c.Name, len(c.Filters))
		}
		var err error
		if l.ends[c], err = newEnd(c.Filters[last].GetTypedConfig()); err != nil {
			return err
		}
		if err := l.ends[c].check(e); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// resolves reports whether filters resolve the server name before the last filter connects.
func resolves(list []*listenerv3.Filter) bool {
	want := []string{"set_filter_state", "sni_dynamic_forward_proxy", "rbac", "tcp_proxy"}
	return slices.EqualFunc(list, want, func(f *listenerv3.Filter, name string) bool {
		return f.GetName() == "envoy.filters.network."+name
	})
}

func (l *listener) add(c *listenerv3.FilterChain, prefixes []netip.Prefix) error {
	m := c.FilterChainMatch
	if len(prefixes) == 0 {
		prefixes = []netip.Prefix{{}}
	}
	names, protocols := m.GetServerNames(), m.GetApplicationProtocols()
	if len(names) == 0 {
		names = []string{""}
	}
	if len(protocols) == 0 {
		protocols = []string{""}
	}
	for _, p := range prefixes {
		for _, n := range names {
			n = strings.ToLower(strings.TrimPrefix(n, "*"))
			for _, a := range protocols {
				leaf := child(child(child(child(l.leaves, m.GetDestinationPort().GetValue()), p), n), m.GetTransportProtocol())
				if other := leaf[a]; other != nil {
					return fmt.Errorf("%s and %s have overlapping matching rules", c.Name, other.Name)
				}
				leaf[a] = c
			}
		}
	}
	return nil
}

func child[K comparable, L comparable, V any](m map[K]map[L]V, k K) map[L]V {
	if m[k] == nil {
		m[k] = map[L]V{}
	}
	return m[k]
}

// end is the target of a chain: routes or a cluster.
type end struct {
	routes  *routev3.RouteConfiguration
	cluster string
}

func newEnd(a *anypb.Any) (end, error) {
	hcm, tcp := &hcmv3.HttpConnectionManager{}, &tcpv3.TcpProxy{}
	if a.MessageIs(hcm) {
		err := a.UnmarshalTo(hcm)
		return end{routes: hcm.GetRouteConfig()}, err
	}
	err := a.UnmarshalTo(tcp)
	return end{cluster: tcp.GetCluster()}, err
}

// check checks that the clusters of a chain exist and that no two virtual hosts share a domain.
func (end end) check(e *envoy) error {
	clusters := []string{end.cluster}
	if end.routes != nil {
		clusters = nil
		domains := map[string]bool{}
		for _, h := range end.routes.VirtualHosts {
			for _, d := range h.Domains {
				if domains[strings.ToLower(d)] {
					return fmt.Errorf("two virtual hosts have the domain %s", d)
				}
				domains[strings.ToLower(d)] = true
			}
			if a := h.Routes[0].GetRoute(); a != nil {
				clusters = append(clusters, a.GetCluster())
			}
		}
	}
	for _, name := range clusters {
		if e.clusters[name] == nil {
			return fmt.Errorf("cluster %s does not exist", name)
		}
	}
	return nil
}

// decide evaluates a connection.
func (e *envoy) decide(c conn) verdict {
	l := e.listeners[c.to.Addr().Is6()]
	transport, application, ok := l.inspect(c)
	if !ok {
		return verdict{closedAt: "listener-filters"}
	}
	ports, ok := l.leaves[uint32(c.to.Port())]
	if !ok {
		if ports, ok = l.leaves[0]; !ok {
			return verdict{closedAt: "destination-port"}
		}
	}
	var best netip.Prefix
	found := false
	for p := range ports {
		if (!p.IsValid() || p.Contains(c.to.Addr())) && (!found || p.Bits() > best.Bits()) {
			best, found = p, true
		}
	}
	if !found {
		return verdict{closedAt: "destination-ip"}
	}
	transports := byServerName(ports[best], transport, c.name)
	if transports == nil {
		return verdict{closedAt: "server-name"}
	}
	applications, ok := transports[transport]
	if !ok {
		if applications, ok = transports[""]; !ok {
			return verdict{closedAt: "transport-protocol"}
		}
	}
	chain, ok := applications[application]
	if !ok || application == "" {
		if chain, ok = applications[""]; !ok {
			return verdict{closedAt: "application-protocol"}
		}
	}
	return e.follow(l.ends[chain], chain.Name, c)
}

// inspect runs the listener filters. It returns false if one of them times out waiting for the
// client and closes the connection.
func (l *listener) inspect(c conn) (transport, application string, ok bool) {
	// the listener's port, until the destination is restored
	port := l.message.GetAddress().GetSocketAddress().GetPortValue()
	transport = "raw_buffer"
	for _, f := range l.message.ListenerFilters {
		kind := f.Name[strings.LastIndexByte(f.Name, '.')+1:]
		if kind == "original_dst" {
			port = uint32(c.to.Port())
			continue
		}
		if f.FilterDisabled != nil && holds(f.FilterDisabled, port) {
			continue
		}
		switch {
		case c.sends == sendsNothing && l.message.ContinueOnListenerFiltersTimeout:
			return transport, "", true // skips the following filters
		case c.sends == sendsNothing:
			return "", "", false
		case kind == "tls_inspector" && c.sends == sendsTLS:
			transport = "tls"
		case kind == "http_inspector" && !c.missed && transport == "raw_buffer" &&
			(c.sends == sendsHTTP1 || c.sends == sendsHTTP2 || c.sends == sendsHTTP10):
			application = c.sends
		}
	}
	return transport, application, true
}

func holds(p *listenerv3.ListenerFilterChainMatchPredicate, port uint32) bool {
	switch p := p.Rule.(type) {
	case *listenerv3.ListenerFilterChainMatchPredicate_AnyMatch:
		return p.AnyMatch
	case *listenerv3.ListenerFilterChainMatchPredicate_NotMatch:
		return !holds(p.NotMatch, port)
	case *listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange:
		r := p.DestinationPortRange
		return int32(port) >= r.Start && int32(port) < r.End
	case *listenerv3.ListenerFilterChainMatchPredicate_OrMatch:
		for _, q := range p.OrMatch.Rules {
			if holds(q, port) {
				return true
			}
		}
	}
	return false
}

func byServerName[V any](names map[string]map[string]V, transport, name string) map[string]V {
	if transport == "tls" && name != "" {
		if v, ok := names[strings.ToLower(name)]; ok {
			return v
		}
		for rest := strings.ToLower(name); ; {
			i := strings.IndexByte(rest[1:], '.')
			if i < 0 {
				break
			}
			rest = rest[1+i:]
			if v, ok := names[rest]; ok {
				return v
			}
		}
	}
	return names[""]
}

// follow evaluates a chain.
func (e *envoy) follow(end end, chain string, c conn) verdict {
	v := verdict{chain: chain}
	cluster := end.cluster
	if end.routes != nil {
		if !c.isRequest() {
			return verdict{chain: chain, closedAt: "filter"}
		}
		h := virtualHost(end.routes, strings.ToLower(c.name))
		if h == nil || h.Routes[0].GetDirectResponse() != nil {
			v.refused = true
			return v
		}
		cluster = h.Routes[0].GetRoute().GetCluster()
	}
	if e.clusters[cluster].GetType() == clusterv3.Cluster_STATIC {
		v.closedAt = "cluster"
		return v
	}
	v.cluster = cluster
	return v
}

func virtualHost(routes *routev3.RouteConfiguration, host string) *routev3.VirtualHost {
	var suffix, prefix, rest *routev3.VirtualHost
	longest := [2]int{}
	for _, h := range routes.VirtualHosts {
		for _, d := range h.Domains {
			d = strings.ToLower(d)
			switch {
			case d == host:
				return h
			case d == "*":
				rest = h
			case strings.HasPrefix(d, "*"):
				if strings.HasSuffix(host, d[1:]) && len(host) >= len(d) && len(d) > longest[0] {
					suffix, longest[0] = h, len(d)
				}
			case strings.HasSuffix(d, "*"):
				if strings.HasPrefix(host, d[:len(d)-1]) && len(host) >= len(d) && len(d) > longest[1] {
					prefix, longest[1] = h, len(d)
				}
			}
		}
	}
	for _, h := range []*routev3.VirtualHost{suffix, prefix, rest} {
		if h != nil {
			return h
		}
	}
	return nil
}
