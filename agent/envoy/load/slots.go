package load

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// slot is a place for an extension, which decides what kind of extension Envoy looks for: an index in slots. 0 takes any
// type that is known.
type slot uint8

const networkFilterSlot slot = 1

// slots are the places for extensions, with the fields that are one. Envoy finds extensions by type among those of the
// slot's category; the packages of the API are named after the categories.
var slots = [...]struct {
	fields   []protoreflect.FullName
	rule     int
	what     string // that another type is not
	packages []string
}{
	networkFilterSlot: {[]protoreflect.FullName{"envoy.config.listener.v3.Filter.typed_config"}, 23, "network filter", []string{"envoy.extensions.filters.network."}},
	{[]protoreflect.FullName{"envoy.config.listener.v3.ListenerFilter.typed_config"}, 23, "listener filter", []string{"envoy.extensions.filters.listener.", "envoy.extensions.filters.udp."}},
	{[]protoreflect.FullName{"envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter.typed_config"}, 23, "HTTP filter", []string{"envoy.extensions.filters.http."}},
	{[]protoreflect.FullName{"envoy.config.core.v3.TransportSocket.typed_config"}, 23, "transport socket", []string{"envoy.extensions.transport_sockets."}},
	{[]protoreflect.FullName{"envoy.config.accesslog.v3.AccessLog.typed_config"}, 23, "access logger", []string{"envoy.extensions.access_loggers.", "envoy.config.accesslog."}},
	{[]protoreflect.FullName{"envoy.config.trace.v3.Tracing.Http.typed_config"}, 51, "tracer", []string{"envoy.config.trace.", "envoy.extensions.tracers."}},
	{[]protoreflect.FullName{
		"envoy.config.route.v3.RouteConfiguration.typed_per_filter_config", "envoy.config.route.v3.VirtualHost.typed_per_filter_config",
		"envoy.config.route.v3.Route.typed_per_filter_config", "envoy.config.route.v3.WeightedCluster.ClusterWeight.typed_per_filter_config",
	}, 52, "config of an HTTP filter", []string{"envoy.extensions.filters.http.", "envoy.config.route.v3.FilterConfig", "envoy.config.route.v3.Route"}},
}

// slotOf is the slot of a field that holds an Any.
func slotOf(f protoreflect.FieldDescriptor) slot {
	for i := range slots {
		if slices.Contains(slots[i].fields, f.FullName()) {
			return slot(i)
		}
	}
	return 0
}

// refuses says which rule a type breaks in the slot, and what it is; "" for one that fits.
func (s slot) refuses(name protoreflect.FullName) (rule int, why string) {
	of := &slots[s]
	if s == 0 || slices.ContainsFunc(of.packages, func(p string) bool { return strings.HasPrefix(string(name), p) }) {
		return 0, ""
	}
	return of.rule, "no " + of.what + ": give one of a type in " + of.packages[0] + "*"
}
