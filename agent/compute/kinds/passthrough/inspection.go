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

// inspect adds the listener filters: what looks at the first bytes of a client, on the ports where
// a rule depends on them.
//
// An inspector waits for these bytes. The listener sees every connection that leaves the workload
// before the listener of a service gets it, so on ports that no such rule is about nothing waits:
// what a server that speaks first says arrives at once. Where a port has both, the wait is short,
// and what is silent until then is a plain connection.
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
		// First, as use_original_dst puts it last: the port is the one that was dialled only behind it,
		// and when the time is up what stands behind the inspectors is left out.
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

// inspected returns the ports on which what the client says decides, or that it does on all but the
// silent ones.
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

// plainServices reports whether the proxy reaches a service of plain TCP on a port that waits.
func plainServices(c *policy.Context, waits func(port uint32) bool) bool {
	outbounds, _ := c.View.Outbounds(c.Proxy())
	return slices.ContainsFunc(outbounds, func(o mesh.Outbound) bool {
		p := o.Service.Protocol
		return !p.HTTP() && p != mesh.ProtocolTLS && waits(o.Port)
	})
}

// ranges makes predicates of ports in ascending order, one for each run of them.
func ranges(ports []uint32) []*predicate {
	var out []*predicate
	for i := 0; i < len(ports); {
		j := i + 1
		for j < len(ports) && ports[j] == ports[j-1]+1 {
			j++
		}
		out = append(out, &predicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
			// the end is not part of it
			DestinationPortRange: &typev3.Int32Range{Start: int32(ports[i]), End: int32(ports[j-1]) + 1},
		}})
		i = j
	}
	return out
}

// anyOf holds where one of the predicates does; nil for none.
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

// listenerFilter packs a filter; an empty message always has a wire form.
func listenerFilter(name string, m proto.Message, disabled *predicate) *listenerv3.ListenerFilter {
	a, _ := draft.Extension{Name: name, Message: m}.Pack()
	return &listenerv3.ListenerFilter{
		Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: a}, FilterDisabled: disabled,
	}
}
