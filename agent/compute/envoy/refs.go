package envoy

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Refs are the names of the resources that a resource refers to. They are immutable. A nil Refs is
// empty.
type Refs struct {
	names      []string         // by kind, sorted and unique within a kind
	ends       [NumKinds]uint32 // where the names of a kind end
	anyCluster bool
}

// Names returns the names of the resources of a kind, sorted and unique. The caller must not change
// the list.
func (r *Refs) Names(k Kind) []string {
	if r == nil {
		return nil
	}
	from := uint32(0)
	if k > 0 {
		from = r.ends[k-1]
	}
	return r.names[from:r.ends[k]:r.ends[k]]
}

// Has reports whether the resource refers to another resource by its name.
func (r *Refs) Has(k Kind, name string) bool {
	_, ok := slices.BinarySearch(r.Names(k), name)
	return ok
}

// AnyCluster reports whether Envoy selects a cluster at run time, from a request header or by a
// program, so that the resource may use any cluster.
func (r *Refs) AnyCluster() bool { return r != nil && r.anyCluster }

// Renamed returns the references with another beginning of the names of a kind that begin with old.
func (r *Refs) Renamed(k Kind, old, name string) *Refs {
	if len(r.Names(k)) == 0 {
		return r
	}
	out := *r
	out.names = slices.Clone(r.names)
	list := out.Names(k)
	for i, x := range list {
		if rest, ok := strings.CutPrefix(x, old); ok && (rest == "" || rest[0] == '#') {
			list[i] = name + rest
		}
	}
	slices.Sort(list)
	return &out
}

// equal reports whether two resources refer to the same resources.
func (r *Refs) equal(o *Refs) bool {
	if r == o || r == nil || o == nil {
		return r == o
	}
	return r.ends == o.ends && r.anyCluster == o.anyCluster && slices.Equal(r.names, o.names)
}

// target is the meaning of a field for references.
type target uint8

const (
	// Targets below this one are the kinds of the resources that a string names.
	toAnyCluster  = target(NumKinds) + iota // a cluster that is selected at run time
	toOwnEndpoint                           // endpoints under the name of the cluster itself
)

// targets lists the fields of Envoy's API that refer to resources.
var targets = map[protoreflect.FullName]target{
	"envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig.name": target(KindSecret),

	"envoy.config.cluster.v3.Cluster.eds_cluster_config":            toOwnEndpoint,
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig.service_name": target(KindEndpoint),

	"envoy.config.route.v3.ScopedRouteConfiguration.route_configuration_name":                   target(KindRoute),
	"envoy.extensions.filters.network.http_connection_manager.v3.Rds.route_config_name":         target(KindRoute),
	"envoy.extensions.filters.network.dubbo_proxy.v3.Drds.route_config_name":                    target(KindRoute),
	"envoy.extensions.filters.network.generic_proxy.v3.GenericRds.route_config_name":            target(KindRoute),
	"envoy.extensions.filters.network.thrift_proxy.v3.Trds.route_config_name":                   target(KindRoute),
	"envoy.config.core.v3.ApiConfigSource.cluster_names":                                        target(KindCluster),
	"envoy.config.core.v3.GrpcService.EnvoyGrpc.cluster_name":                                   target(KindCluster),
	"envoy.config.core.v3.HttpUri.cluster":                                                      target(KindCluster),
	"envoy.config.route.v3.RouteAction.cluster":                                                 target(KindCluster),
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster":                             target(KindCluster),
	"envoy.config.route.v3.WeightedCluster.ClusterWeight.name":                                  target(KindCluster),
	"envoy.config.trace.v3.DatadogConfig.collector_cluster":                                     target(KindCluster),
	"envoy.config.trace.v3.LightstepConfig.collector_cluster":                                   target(KindCluster),
	"envoy.config.trace.v3.ZipkinConfig.collector_cluster":                                      target(KindCluster),
	"envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig.cluster":                 target(KindCluster),
	"envoy.extensions.clusters.aggregate.v3.ClusterConfig.clusters":                             target(KindCluster),
	"envoy.extensions.clusters.composite.v3.ClusterConfig.ClusterEntry.name":                    target(KindCluster),
	"envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpCluster.cluster":            target(KindCluster),
	"envoy.extensions.filters.http.cache_v2.v3.CacheV2Config.override_upstream_cluster":         target(KindCluster),
	"envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig.cluster":                   target(KindCluster),
	"envoy.extensions.filters.http.mcp_router.v3.McpRouter.McpCluster.cluster":                  target(KindCluster),
	"envoy.extensions.filters.network.dubbo_proxy.v3.RouteAction.cluster":                       target(KindCluster),
	"envoy.extensions.filters.network.generic_proxy.action.v3.RouteAction.cluster":              target(KindCluster),
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.cluster":                            target(KindCluster),
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight.name": target(KindCluster),
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.cluster":                      target(KindCluster),
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.RequestMirrorPolicy.cluster":  target(KindCluster),
	"envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight.name":       target(KindCluster),
	"envoy.extensions.filters.udp.udp_proxy.v3.Route.cluster":                                   target(KindCluster),
	"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.cluster":                          target(KindCluster),
	"envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig.default_cluster":               target(KindCluster),
	"envoy.extensions.router.cluster_specifiers.matcher.v3.ClusterAction.cluster":               target(KindCluster),
	"envoy.extensions.router.cluster_specifiers.priority_group.v3.ClusterWeight.cluster_name":   target(KindCluster),
	"envoy.extensions.tracers.fluentd.v3.FluentdConfig.cluster":                                 target(KindCluster),

	redisRoute + ".cluster":                     target(KindCluster),
	redisRoute + ".ReadCommandPolicy.cluster":   target(KindCluster),
	redisRoute + ".RequestMirrorPolicy.cluster": target(KindCluster),

	"envoy.config.route.v3.RouteAction.cluster_header":                            toAnyCluster,
	"envoy.config.route.v3.RouteAction.cluster_specifier_plugin":                  toAnyCluster,
	"envoy.config.route.v3.RouteAction.inline_cluster_specifier_plugin":           toAnyCluster,
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster_header":        toAnyCluster,
	"envoy.config.route.v3.WeightedCluster.ClusterWeight.cluster_header":          toAnyCluster,
	"envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.cluster_header": toAnyCluster,

	// Programs send requests to clusters that they name in their code.
	"envoy.extensions.filters.http.lua.v3.Lua.inline_code":         toAnyCluster,
	"envoy.extensions.filters.http.lua.v3.Lua.default_source_code": toAnyCluster,
	"envoy.extensions.filters.http.lua.v3.Lua.source_codes":        toAnyCluster,
	"envoy.extensions.filters.http.lua.v3.LuaPerRoute.source_code": toAnyCluster,
	"envoy.extensions.wasm.v3.PluginConfig.vm_config":              toAnyCluster,
	"envoy.extensions.dynamic_modules.v3.DynamicModuleConfig.name": toAnyCluster,
}

const redisRoute = "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route"

// RefFinder finds the references in encoded resources by the fields of Envoy's API. It caches the
// message types that it encounters. The zero value is ready for use by one goroutine at a time. It
// must not be copied after the first use.
type RefFinder struct {
	walker fieldWalker

	// The references of the current resource, in any order.
	names       [NumKinds][]string
	anyCluster  bool
	ownEndpoint bool
}

// Find returns the references of a resource, nil for none. If the body is not a valid message, Find
// returns the references that precede the fault.
func (f *RefFinder) Find(k Kind, name string, body []byte) *Refs {
	if k == KindSecret || k == KindEndpoint {
		return nil
	}
	if f.walker.targets == nil {
		f.walker.targets, f.walker.found = targets, f.collect
	}
	for i := range f.names {
		f.names[i] = f.names[i][:0]
	}
	f.anyCluster, f.ownEndpoint = false, false
	f.walker.walk(k, body)
	if f.ownEndpoint && len(f.names[KindEndpoint]) == 0 {
		f.names[KindEndpoint] = append(f.names[KindEndpoint], name)
	}
	total := 0
	for i, names := range f.names {
		slices.Sort(names)
		f.names[i] = slices.Compact(names)
		total += len(f.names[i])
	}
	if total == 0 && !f.anyCluster {
		return nil
	}
	out := &Refs{anyCluster: f.anyCluster, names: make([]string, 0, total)}
	for i, names := range f.names {
		out.names = append(out.names, names...)
		out.ends[i] = uint32(len(out.names)) // #nosec G115 -- at most the size of a resource
	}
	return out
}

// collect adds the value of a field to the references.
func (f *RefFinder) collect(to target, value []byte) {
	switch {
	case to == toOwnEndpoint:
		f.ownEndpoint = true
	case to == toAnyCluster:
		f.anyCluster = true
	case len(value) > 0:
		f.names[to] = append(f.names[to], string(value))
	}
}

// logTargets lists the fields that contain the destination of an access log.
var logTargets = map[protoreflect.FullName]target{
	"envoy.extensions.access_loggers.file.v3.FileAccessLog.path": 0,
	"envoy.config.core.v3.GrpcService.EnvoyGrpc.authority":       0,
}

// LogTargets returns the paths of the files, and the authorities of the gRPC services, that the
// loggers of listeners write to.
func LogTargets(listeners []*Resource) map[string]bool {
	out := map[string]bool{}
	w := fieldWalker{targets: logTargets, found: func(_ target, value []byte) { out[string(value)] = true }}
	for _, l := range listeners {
		w.walk(KindListener, l.Body())
	}
	return out
}
