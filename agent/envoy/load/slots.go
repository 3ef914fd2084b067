package load

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// slot is a place for an extension, which decides what kind of extension Envoy looks for.
type slot uint8

const (
	anySlot slot = iota // any type that is known
	networkFilterSlot
	listenerFilterSlot
	httpFilterSlot
	downstreamSocketSlot
	accessLoggerSlot
	tracerSlot
	perFilterSlot
)

// slotOf is the slot of a field that holds an Any.
func slotOf(f protoreflect.FieldDescriptor) slot {
	switch f.FullName() {
	case "envoy.config.listener.v3.Filter.typed_config":
		return networkFilterSlot
	case "envoy.config.listener.v3.ListenerFilter.typed_config":
		return listenerFilterSlot
	case "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter.typed_config":
		return httpFilterSlot
	case "envoy.config.core.v3.TransportSocket.typed_config":
		return downstreamSocketSlot
	case "envoy.config.accesslog.v3.AccessLog.typed_config":
		return accessLoggerSlot
	case "envoy.config.trace.v3.Tracing.Http.typed_config":
		return tracerSlot
	case "envoy.config.route.v3.RouteConfiguration.typed_per_filter_config", "envoy.config.route.v3.VirtualHost.typed_per_filter_config",
		"envoy.config.route.v3.Route.typed_per_filter_config", "envoy.config.route.v3.WeightedCluster.ClusterWeight.typed_per_filter_config":
		return perFilterSlot
	}
	return anySlot
}

// refuses says which rule a type breaks in the slot, and what it is; "" for one that fits. Envoy finds extensions by
// type among those of the slot's category; the packages of the API are named after the categories.
func (s slot) refuses(name protoreflect.FullName) (rule int, why string) {
	var packages []string
	what := ""
	switch s {
	case networkFilterSlot:
		packages, what = []string{"envoy.extensions.filters.network."}, "no network filter"
	case listenerFilterSlot:
		packages, what = []string{"envoy.extensions.filters.listener.", "envoy.extensions.filters.udp."}, "no listener filter"
	case httpFilterSlot:
		packages, what = []string{"envoy.extensions.filters.http."}, "no HTTP filter"
	case downstreamSocketSlot:
		packages, what = []string{"envoy.extensions.transport_sockets."}, "no transport socket"
	case accessLoggerSlot:
		packages, what = []string{"envoy.extensions.access_loggers.", "envoy.config.accesslog."}, "no access logger"
	case tracerSlot:
		packages, what = []string{"envoy.config.trace.", "envoy.extensions.tracers."}, "no tracer"
	case perFilterSlot:
		packages, what = []string{"envoy.extensions.filters.http.", "envoy.config.route.v3.FilterConfig", "envoy.config.route.v3.Route"}, "no config of an HTTP filter"
	default:
		return 0, ""
	}
	if slices.ContainsFunc(packages, func(p string) bool { return strings.HasPrefix(string(name), p) }) {
		return 0, ""
	}
	switch s {
	case tracerSlot:
		rule = 51
	case perFilterSlot:
		rule = 52
	default:
		rule = 23
	}
	return rule, what + ": give one of a type in " + packages[0] + "*"
}
