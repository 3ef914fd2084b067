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

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
)

// Names of Envoy's listener filters.
const (
	nameOriginalDst   = "envoy.filters.listener.original_dst"
	nameTLSInspector  = "envoy.filters.listener.tls_inspector"
	nameHTTPInspector = "envoy.filters.listener.http_inspector"
)

// maxPredicates bounds the ranges of ports that are looked through for every connection of a proxy when no rule asks
// for it.
const maxPredicates = 64

// inspection makes the listener filters: what looks at the first bytes of a client, and on which ports it does not.
//
// An inspector waits for these bytes, and Envoy closes the connection when none come within 15 s. The listener sees
// every connection that leaves the workload before the listener of a service gets it, so the inspectors are off on the
// ports of rules about protocols in which the server speaks first; and where the proxy has services of plain TCP, whose
// servers may speak first too, on all ports that no rule is about, since nothing is chosen there by what the client says.
func inspection(c *policy.Context, s *ruleSet) []*listenerv3.ListenerFilter {
	disabled := anyOf(ranges(slices.Sorted(maps.Keys(s.silent))))
	if named, ok := s.inspected(); ok && plainServices(c, named) {
		if in := ranges(named); len(in) == 0 {
			disabled = &predicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_AnyMatch{AnyMatch: true}}
		} else if len(in) <= maxPredicates {
			disabled = &predicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: anyOf(in)}}
		}
	}
	var out []*listenerv3.ListenerFilter
	if disabled != nil {
		// The port is the one that was dialled only behind this filter, which use_original_dst puts last.
		out = append(out, listenerFilter(nameOriginalDst, &originaldstv3.OriginalDst{}, nil))
	}
	return append(out,
		listenerFilter(nameTLSInspector, &tlsinspectorv3.TlsInspector{}, disabled),
		listenerFilter(nameHTTPInspector, &httpinspectorv3.HttpInspector{}, disabled))
}

type predicate = listenerv3.ListenerFilterChainMatchPredicate

// inspected returns the ports on which what the client says decides; false when that is so on all ports.
func (s *ruleSet) inspected() ([]uint32, bool) {
	var out []uint32
	for _, r := range s.rules {
		switch {
		case r.port == 0:
			return nil, false
		case s.silent[r.port] == nil:
			out = append(out, r.port)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), true
}

// plainServices reports whether the proxy reaches a service of plain TCP on another port than those given, which are
// sorted.
func plainServices(c *policy.Context, ports []uint32) bool {
	outbounds, _ := c.View.Outbounds(c.Proxy)
	for i := range outbounds {
		o := &outbounds[i]
		if p := o.Service.Protocol; !p.HTTP() && p != mesh.ProtocolTLS {
			if _, named := slices.BinarySearch(ports, o.Port); !named {
				return true
			}
		}
	}
	return false
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
			DestinationPortRange: &typev3.Int32Range{Start: int32(ports[i]), End: int32(ports[j-1]) + 1}, // the end is not part of it
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
