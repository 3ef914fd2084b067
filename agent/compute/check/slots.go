package check

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// slot is an index in slots. It identifies the kind of extension that Envoy expects in a field.
// Slot 0 accepts every known type.
type slot uint8

// These slots depend on the messages around them.
const (
	networkFilterSlot slot = iota + 1
	httpFilterSlot
	upstreamFilterSlot
	socketSlot // of unknown side
	downstreamSocketSlot
	upstreamSocketSlot
	inputSlot
	httpInputSlot
	networkInputSlot
)

// slotSpec describes one slot. Envoy looks up extensions by type among those of the slot's
// categories.
type slotSpec struct {
	fields     []protoreflect.FullName // the fields of this slot
	rule       int
	what       string   // for messages about another type
	categories []string // names in Envoy's Node
	packages   []string // packages of the types, if they have no category
	types      map[protoreflect.FullName]int
}

const (
	hcmPackage  = "envoy.extensions.filters.network.http_connection_manager.v3."
	httpFilters = "envoy.extensions.filters.http."
	tlsPackage  = "envoy.extensions.transport_sockets.tls.v3."
	routePkg    = "envoy.config.route.v3."
)

// slots lists the slots for extensions.
var slots = withTypes([]slotSpec{
	0: {},
	networkFilterSlot: {fields("envoy.config.listener.v3.Filter.typed_config"), 23, "network filter",
		list("envoy.filters.network"), nil, nil},
	httpFilterSlot: {fields(hcmPackage + "HttpFilter.typed_config"), 23, "HTTP filter",
		list("envoy.filters.http"), nil, nil},
	upstreamFilterSlot: {nil, 23, "HTTP filter for upstreams", list("envoy.filters.http.upstream"), nil, nil},
	socketSlot: {fields("envoy.config.core.v3.TransportSocket.typed_config"), 23, "transport socket",
		list("envoy.transport_sockets.downstream", "envoy.transport_sockets.upstream"), nil, nil},
	downstreamSocketSlot: {nil, 24, "transport socket of a listener",
		list("envoy.transport_sockets.downstream"), nil, nil},
	upstreamSocketSlot: {nil, 24, "transport socket of a cluster", list("envoy.transport_sockets.upstream"), nil, nil},
	inputSlot: {fields("xds.type.matcher.v3.Matcher.MatcherList.Predicate.SinglePredicate.input",
		"xds.type.matcher.v3.Matcher.MatcherTree.input"), 23, "", nil, nil, nil},
	httpInputSlot: {nil, 23, "input of requests", list("envoy.matching.http.input", "envoy.matching.common_inputs"), nil,
		nil},
	networkInputSlot: {nil, 32, "input of connections",
		list("envoy.matching.network.input", "envoy.matching.common_inputs"), nil, nil},
	10: {fields("envoy.config.listener.v3.ListenerFilter.typed_config"), 23, "listener filter",
		list("envoy.filters.listener", "envoy.filters.udp_listener"), nil, nil},
	{fields("envoy.config.accesslog.v3.AccessLog.typed_config"), 23, "access logger",
		list("envoy.access_loggers"), nil, nil},
	{fields("envoy.config.accesslog.v3.ExtensionFilter.typed_config"), 107, "filter of access logs",
		list("envoy.access_loggers.extension_filters"), nil, nil},
	{fields("envoy.config.trace.v3.Tracing.Http.typed_config"), 51, "tracer", list("envoy.tracers"), nil, nil},
	{fields(routePkg+"RouteConfiguration.typed_per_filter_config", routePkg+"VirtualHost.typed_per_filter_config",
		routePkg+"Route.typed_per_filter_config", routePkg+"WeightedCluster.ClusterWeight.typed_per_filter_config"),
		52, "config of an HTTP filter", nil, []string{httpFilters, routePkg + "FilterConfig", routePkg + "Route"}, nil},

	{fields("envoy.config.cluster.v3.Cluster.CustomClusterType.typed_config"), 23, "type of cluster",
		list("envoy.clusters"), nil, nil},
	{fields("envoy.config.cluster.v3.Filter.typed_config"), 23, "network filter of clusters",
		list("envoy.filters.upstream_network"), nil, nil},
	{fields("envoy.extensions.clusters.dns.v3.DnsCluster.typed_dns_resolver_config",
		"envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig.typed_dns_resolver_config",
		"envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfig.ClientContextConfig.typed_dns_resolver_config"),
		23, "DNS resolver", list("envoy.network.dns_resolver"), nil, nil},
	{fields("envoy.config.core.v3.BindConfig.local_address_selector"), 23, "selector of local addresses",
		list("envoy.upstream.local_address_selector"), nil, nil},
	{fields("envoy.config.core.v3.HealthCheck.CustomHealthCheck.typed_config"), 23, "health checker",
		list("envoy.health_checkers"), nil, nil},
	{fields("envoy.config.core.v3.HealthCheck.event_logger"), 23, "sink of health check events",
		list("envoy.health_check.event_sinks"), nil, nil},
	{fields("envoy.config.core.v3.Http1ProtocolOptions.HeaderKeyFormat.stateful_formatter"), 23,
		"formatter of header names", list("envoy.http.stateful_header_formatters"), nil, nil},
	{fields("envoy.extensions.upstreams.http.v3.HttpProtocolOptions.header_validation_config",
		hcmPackage+"HttpConnectionManager.typed_header_validation_config"), 23, "header validator",
		list("envoy.http.header_validators"), nil, nil},
	{fields(routePkg+"RetryPolicy.RetryHostPredicate.typed_config",
		"envoy.config.core.v3.RetryPolicy.RetryHostPredicate.typed_config"), 23, "predicate of retry hosts",
		list("envoy.retry_host_predicates"), nil, nil},
	{fields(routePkg+"RetryPolicy.RetryPriority.typed_config",
		"envoy.config.core.v3.RetryPolicy.RetryPriority.typed_config"), 23, "retry priority",
		list("envoy.retry_priorities"), nil, nil},
	{fields(routePkg + "RetryPolicy.retry_options_predicates"), 23, "predicate of retry options",
		list("envoy.retry_options_predicates"), nil, nil},
	{fields("envoy.config.core.v3.SubstitutionFormatString.formatters",
		"envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig.formatters",
		"envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig.formatters",
		"envoy.extensions.filters.http.header_mutation.v3.Mutations.formatters",
		"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.TunnelingConfig.formatters",
		"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.UdpTunnelingConfig.formatters",
		"envoy.config.core.v3.HttpService.formatters"), 105, "formatter", list("envoy.formatter"), nil, nil},
	{fields("envoy.config.listener.v3.Listener.ConnectionBalanceConfig.extend_balance"), 19, "connection balancer",
		list("envoy.network.connection_balance"), nil, nil},
	{fields("envoy.config.rbac.v3.Permission.matcher"), 101, "matcher of permissions",
		list("envoy.rbac.matchers"), nil, nil},
	{fields("envoy.config.rbac.v3.Principal.custom"), 101, "principal", list("envoy.rbac.principals"), nil, nil},
	{fields("envoy.config.rbac.v3.Permission.uri_template", routePkg+"RouteMatch.path_match_policy"), 23,
		"matcher of paths", list("envoy.path.match"), nil, nil},
	{fields(routePkg + "RouteAction.path_rewrite_policy"), 23, "rewriter of paths", list("envoy.path.rewrite"), nil, nil},
	{fields(routePkg+"Route.route_specifiers", routePkg+"VirtualHost.route_specifiers", routePkg+
		"RouteConfiguration.route_specifiers"), 23, "route specifier", list("envoy.router.route_specifiers"), nil, nil},
	{fields(routePkg + "InternalRedirectPolicy.predicates"), 23, "predicate of internal redirects",
		list("envoy.internal_redirect_predicates"), nil, nil},
	{fields(routePkg + "RateLimit.Action.extension"), 23, "descriptor of rate limits",
		list("envoy.rate_limit_descriptors", "envoy.matching.http.input"), nil, nil},
	{fields(routePkg + "RouteAction.early_data_policy"), 23, "policy of early data",
		list("envoy.route.early_data_policy"), nil, nil},
	{fields("envoy.type.matcher.v3.StringMatcher.custom", "xds.type.matcher.v3.StringMatcher.custom"), 23,
		"matcher of strings", list("envoy.string_matcher"), nil, nil},
	{fields("envoy.config.trace.v3.OpenTelemetryConfig.resource_detectors",
		"envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig.resource_detectors"), 51,
		"resource detector", list("envoy.tracers.opentelemetry.resource_detectors"), nil, nil},
	{fields("envoy.config.trace.v3.OpenTelemetryConfig.sampler",
		"envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig.wrapped_sampler"), 51,
		"sampler", list("envoy.tracers.opentelemetry.samplers"), nil, nil},
	{fields(httpFilters+"compressor.v3.Compressor.compressor_library",
		httpFilters+"compressor.v3.CompressorOverrides.compressor_library"), 23,
		"compressor", list("envoy.compression.compressor"), nil, nil},
	{fields(httpFilters + "decompressor.v3.Decompressor.decompressor_library"), 23,
		"decompressor", list("envoy.compression.decompressor"), nil, nil},
	{fields(httpFilters + "credential_injector.v3.CredentialInjector.credential"), 23,
		"credential", list("envoy.http.injected_credentials"), nil, nil},
	{fields(httpFilters + "stateful_session.v3.StatefulSession.session_state"), 23, "session state",
		list("envoy.http.stateful_session"), nil, nil},
	{fields(httpFilters + "cache.v3.CacheConfig.typed_config"), 23, "cache", list("envoy.http.cache"), nil, nil},
	{fields(httpFilters + "cache_v2.v3.CacheV2Config.typed_config"), 23, "cache", list("envoy.http.cache_v2"), nil, nil},
	{fields(httpFilters+"geoip.v3.Geoip.provider", "envoy.extensions.filters.network.geoip.v3.Geoip.provider"), 23,
		"geoip provider", list("envoy.geoip_providers"), nil, nil},
	{fields(httpFilters + "ext_proc.v3.ExternalProcessor.on_processing_response"), 23, "response processor",
		list("envoy.http.ext_proc.response_processors"), nil, nil},
	{fields(hcmPackage + "HttpConnectionManager.early_header_mutation_extensions"), 23, "early header mutation",
		list("envoy.http.early_header_mutation"), nil, nil},
	{fields(hcmPackage + "HttpConnectionManager.original_ip_detection_extensions"), 23, "detection of original addresses",
		list("envoy.http.original_ip_detection"), nil, nil},
	{fields(hcmPackage + "RequestIDExtension.typed_config"), 23, "request ID extension",
		list("envoy.request_id"), nil, nil},
	{fields(tlsPackage + "CommonTlsContext.custom_handshaker"), 23, "TLS handshaker",
		list("envoy.tls_handshakers"), nil, nil},
	{fields(tlsPackage + "CommonTlsContext.custom_tls_certificate_selector"), 23, "certificate selector",
		list("envoy.tls.certificate_selectors"), nil, nil},
	{fields("envoy.config.common.key_value.v3.KeyValueStoreConfig.config"), 23, "key value store",
		list("envoy.common.key_value"), nil, nil},
})

func fields(names ...protoreflect.FullName) []protoreflect.FullName { return names }
func list(names ...string) []string                                 { return names }

func withTypes(list []slotSpec) []slotSpec {
	for i := range list {
		if list[i].categories != nil {
			list[i].types = types(list[i].categories)
		}
	}
	return list
}

// slotOf returns the slot of a field that holds an Any or a TypedExtensionConfig.
func slotOf(f protoreflect.FieldDescriptor) slot {
	for i := range slots {
		if slices.Contains(slots[i].fields, f.FullName()) {
			return slot(i)
		}
	}
	return 0
}

// at returns the slot that applies within the messages around it.
func (s slot) at(w *walker) slot {
	switch s {
	case httpFilterSlot:
		if w.inside("envoy.extensions.filters.http.router.v3.Router") || w.inside(nameHTTPOptions) {
			return upstreamFilterSlot
		}
	case socketSlot:
		switch {
		case w.inside("envoy.config.cluster.v3.Cluster"):
			return upstreamSocketSlot
		case w.inside("envoy.config.listener.v3.FilterChain"):
			return downstreamSocketSlot
		}
	case inputSlot:
		switch {
		case slices.ContainsFunc(w.stack, func(n protoreflect.FullName) bool {
			return strings.HasPrefix(string(n), httpFilters)
		}):
			return httpInputSlot
		case w.inside("envoy.extensions.filters.network.rbac.v3.RBAC"):
			return networkInputSlot
		}
		return 0 // rule 32 covers it
	}
	return s
}

// onRoutes reports whether a type is the per-route config of an HTTP filter, which cannot configure
// the filter itself.
func onRoutes(name protoreflect.FullName) bool {
	return strings.HasSuffix(string(name), "PerRoute") || strings.HasSuffix(string(name), "PerRouteConfig") ||
		name == httpFilters+"cors.v3.CorsPolicy"
}

// fit reports whether a type fits into a slot. It returns the index in extensionList, or -1 for a
// type that needs none, and the reason if the type does not fit.
func (s slot) fit(name protoreflect.FullName) (index int, ok bool, why string) {
	of := &slots[s]
	switch {
	case of.rule == 52 && name == httpFilters+"router.v3.Router":
		return -1, false, "no " + of.what + " for routes: remove it"
	case s == 0 || of.types == nil && slices.ContainsFunc(of.packages, func(p string) bool {
		return strings.HasPrefix(string(name), p)
	}):
		return -1, true, ""
	case of.types == nil:
		return -1, false, "no " + of.what + ": use a type in " + of.packages[0] + "*"
	}
	index, ok = of.types[name]
	if ok && (s == httpFilterSlot || s == upstreamFilterSlot) && onRoutes(name) {
		return -1, false, "for routes: use the config of the filter itself"
	}
	if ok {
		return index, true, ""
	}
	return -1, false, "no " + of.what + ": use " + of.examples()
}

// examples lists some types that fit.
func (p *slotSpec) examples() string {
	var names []string
	for i, e := range extensionList {
		if _, ok := p.types[e.name]; ok && slices.Contains(p.categories, e.category) && !onRoutes(e.name) && e.since == 0 &&
			!slices.Contains(names, string(extensionList[i].name)) {
			names = append(names, string(e.name))
		}
	}
	switch {
	case len(names) == 0:
		return "none, stock Envoys have no such extension"
	case len(names) > 3:
		return "one such as " + strings.Join(names[:3], ", ")
	}
	return "one of " + strings.Join(names, ", ")
}

// isKnownType reports whether Envoys know a type in any category.
func isKnownType(name protoreflect.FullName) bool {
	_, isOptions := protocolOptions[string(name)]
	return isOptions || slices.ContainsFunc(extensionList, func(e extension) bool { return e.name == name })
}
