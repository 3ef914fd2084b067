package passthrough

import (
	"maps"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
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
// listener of a service does. Therefore ports without such a rule are not inspected: the first
// bytes of a server arrive immediately. On ports with both kinds of rules the wait is short, and a
// connection without client bytes by then is plain.
func inspect(l *listenerv3.Listener, c *policy.Context, s *ruleSet) {
	named, all := s.inspected()
	if !all && len(named) == 0 {
		return
	}
	disabled := anyOf(ranges(slices.Sorted(maps.Keys(s.silent))))
	isPlain := func(r *rule) bool { return r.protocol.class() == plain }
	if slices.ContainsFunc(s.rules, isPlain) || plainServices(c, func(uint32) bool { return true }) {
		if !all {
			disabled = &predicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: anyOf(ranges(named))}}
		}
		// It comes first because use_original_dst adds it last: the dialed port is known only after
		// it, and the filters after the inspectors are skipped on a timeout.
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter(nameOriginalDst, &originaldstv3.OriginalDst{}, nil))
	}
	l.ListenerFilters = append(l.ListenerFilters,
		listenerFilter(nameTLSInspector, &tlsinspectorv3.TlsInspector{}, disabled),
		listenerFilter(nameHTTPInspector, &httpinspectorv3.HttpInspector{}, disabled))
	waits := func(port uint32) bool { return all && s.silent[port] == nil || slices.Contains(named, port) }
	onWaiting := func(r *rule) bool { return isPlain(r) && (r.port == 0 || waits(r.port)) }
	if slices.ContainsFunc(s.rules, onWaiting) || plainServices(c, waits) {
		draft.ServerMaySpeakFirst(l)
	}
}

type predicate = listenerv3.ListenerFilterChainMatchPredicate

// inspected returns the ports whose rules depend on the client's bytes. all is true if these are
// all ports except the silent ones.
func (s *ruleSet) inspected() (ports []uint32, all bool) {
	for _, r := range s.rules {
		switch {
		case r.protocol.class() == plain:
		case r.port == 0:
			return nil, true
		default:
			ports = append(ports, r.port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports), false
}

// plainServices reports whether the proxy reaches a plain TCP service on an inspected port.
func plainServices(c *policy.Context, waits func(port uint32) bool) bool {
	outbounds, _ := c.View.Outbounds(c.Proxy())
	return slices.ContainsFunc(outbounds, func(o mesh.Outbound) bool {
		p := o.Service.Protocol
		return !p.HTTP() && p != mesh.ProtocolTLS && waits(o.Port)
	})
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
