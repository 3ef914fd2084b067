// Package match traces connections and requests through a config as Envoy does.
//
// [Open] returns the [Config] of a snapshot. The [Trace] of a connection or request has a step for
// each decision: the listener, the results of its listener filters, the filter chain, the virtual
// host, the route, and the clusters, with the candidates and the reasons that eliminated others.
// [Listener], [Routes], and [EvaluateRBAC] answer single questions.
//
// The algorithms follow Envoy's source (FilterChainManagerImpl, RouteMatcher, the RBAC engine, and
// Matcher of envoyproxy/envoy). Where versions differ, they follow the newest one, and a comment
// says so.
package match
