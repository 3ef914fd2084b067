// Package match follows connections and requests through a config as Envoy does.
//
// [Open] makes a [Config] of a snapshot. The [Trace] of a connection or request has a step for each
// question: which listener takes it, what the listener filters find out, which filter chain,
// virtual host, route and clusters it comes to, with the candidates and why the others were
// eliminated. [Listener], [Routes] and [EvaluateRBAC] answer single questions.
//
// How Envoy chooses follows its source (FilterChainManagerImpl, RouteMatcher, the RBAC engine and
// Matcher of envoyproxy/envoy). Where versions differ, the newest is followed and the code says so.
package match
