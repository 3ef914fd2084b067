package passthrough

import (
	"maps"
	"net/netip"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// Names of Envoy's listener filters.
const (
	nameOriginalDst   = "envoy.filters.listener.original_dst"
	nameTLSInspector  = "envoy.filters.listener.tls_inspector"
	nameHTTPInspector = "envoy.filters.listener.http_inspector"
)

// inspect adds the listener filters that inspect the first bytes of a client, on the ports where a
// rule depends on them.
//
// An inspector waits for these bytes. The listener receives every outbound connection before the
// listener of a service does, if the Dataplane does not name a port for virtual addresses.
// Therefore ports without such a rule are not inspected: the first bytes of a server arrive
// immediately. On mixed ports, which also have a plain rule or service, Envoy waits until its
// default timeout, and then uses the chain of a plain rule. This permits nothing else: the chains
// of plain rules also accept TLS and requests, where no other rule does.
func (a *applier) inspect(l *listenerv3.Listener, s *ruleSet) {
	if len(s.first) == 0 {
		return
	}
	services := a.plainServices()
	disabled := anyOf(ranges(slices.Sorted(maps.Keys(s.silent))))
	plainRules := slices.ContainsFunc(s.rules, func(r *rule) bool { return r.protocol.class() == plain })
	if plainRules || len(services) > 0 {
		if s.first[0] == nil {
			named := anyOf(ranges(slices.Sorted(maps.Keys(s.first))))
			disabled = &predicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: named}}
		}
		// It comes first because use_original_dst adds it last: the dialed port is known only after
		// it, and the filters after the inspectors are skipped on a timeout.
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter(nameOriginalDst, &originaldstv3.OriginalDst{}, nil))
	}
	l.ListenerFilters = append(l.ListenerFilters,
		listenerFilter(nameTLSInspector, &tlsinspectorv3.TlsInspector{}, disabled),
		listenerFilter(nameHTTPInspector, &httpinspectorv3.HttpInspector{}, disabled))
	if mixed := s.mixedPorts(services, a.c.View.IsVirtual); len(mixed) > 0 {
		l.ContinueOnListenerFiltersTimeout = true
		a.effect.notes.mixed(mixed, a.virtualPort != 0)
	}
}

type predicate = listenerv3.ListenerFilterChainMatchPredicate

// plainServices returns the plain TCP services that the proxy reaches through the passthrough
// listener, by port.
func (a *applier) plainServices() map[uint32]mesh.Outbound {
	out := map[uint32]mesh.Outbound{}
	outbounds, _ := a.c.View.Outbounds(a.c.Proxy())
	for _, o := range outbounds {
		if p := o.Service.Protocol; p.HTTP() || p == mesh.ProtocolTLS {
			continue
		}
		// The first one that does not use the port for virtual addresses, if there is one.
		first, ok := out[o.Port]
		if !ok || a.c.View.IsVirtual(first.Address) && !a.c.View.IsVirtual(o.Address) {
			out[o.Port] = o
		}
	}
	return out
}

// mixedPort is a port with a rule that depends on the client's bytes, and with a plain rule or
// service.
type mixedPort struct {
	port    uint32 // 0: all ports without rules
	first   *rule
	plain   *rule // nil if there is only a service
	service string
	virtual bool // the service has a virtual address
}

// mixedPorts returns the mixed ports in order.
func (s *ruleSet) mixedPorts(services map[uint32]mesh.Outbound, isVirtual func(netip.Addr) bool) []mixedPort {
	found := map[uint32]mixedPort{}
	var general *rule
	for _, r := range s.rules {
		switch {
		case r.protocol.class() != plain:
		case r.port == 0 && general == nil:
			general = r
			for port := range s.first {
				if _, ok := found[port]; !ok && s.inspects(port) != nil {
					found[port] = mixedPort{port: port, first: s.inspects(port), plain: r}
				}
			}
		case s.inspects(r.port) != nil && found[r.port].plain == nil:
			found[r.port] = mixedPort{port: r.port, first: s.inspects(r.port), plain: r}
		}
	}
	for port, o := range services {
		if _, ok := found[port]; !ok && s.inspects(port) != nil {
			found[port] = mixedPort{port: port, first: s.inspects(port), service: o.Service.ID.Name,
				virtual: isVirtual(o.Address)}
		}
	}
	out := make([]mixedPort, 0, len(found))
	for _, port := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[port])
	}
	return out
}

// ranges converts sorted ports to predicates, one for each consecutive range.
func ranges(ports []uint32) []*predicate {
	var out []*predicate
	for i := 0; i < len(ports); {
		j := i + 1
		for j < len(ports) && ports[j] == ports[j-1]+1 {
			j++
		}
		out = append(out, &predicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
			// The end is exclusive.
			DestinationPortRange: &typev3.Int32Range{Start: int32(ports[i]), End: int32(ports[j-1]) + 1},
		}})
		i = j
	}
	return out
}

// anyOf returns a predicate that is true if one of the predicates is; nil for none.
func anyOf(list []*predicate) *predicate {
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return &predicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
		OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: list},
	}}
}

// listenerFilter packs a filter. Packing an empty message cannot fail.
func listenerFilter(name string, m proto.Message, disabled *predicate) *listenerv3.ListenerFilter {
	a, _ := draft.Extension{Name: name, Message: m}.Pack()
	return &listenerv3.ListenerFilter{
		Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: a}, FilterDisabled: disabled,
	}
}
