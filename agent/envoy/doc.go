// Package envoy knows what an Envoy makes of the config that it is given: what it refuses to load, what it loads and
// cannot use, which way connections and requests go through it, and what things mean that are written in a language of
// its own. It stands in for an Envoy where there is none to ask.
//
// The check. [Checker] holds the config of a proxy, a [Snapshot] of sealed resources, to the rules of [Rules]: the
// resources one by one with all that is packed in them, against each other, and against what the proxy has already. A
// [Finding] says which rule, where, and whether the resource must not be sent.
//
// The engine. [Open] makes a [Config] of a snapshot, which follows a connection or a request: which listener takes it,
// what the listener filters find out, which filter chain, virtual host, route and clusters it comes to. The [Trace] has a
// step for each question with the candidates, the choice and why the others fell. [Listener], [Routes] and
// [EvaluateRBAC] answer single questions, fast. The check and the engine are built on the same index of filter chains.
//
// The formats of access logs, which Envoy calls substitution format strings: [ParseFormat] accepts what Envoy accepts
// when it loads a listener, so that a fault is found when a policy is written and costs the policy alone, instead of
// being found by an Envoy that then rejects the listener as a whole.
//
// How Envoy chooses is written down as its source has it (FilterChainManagerImpl, RouteMatcher, the RBAC engine and
// Matcher of envoyproxy/envoy). Where versions differ, the newest is followed and the code says so.
//
// The package knows no mesh. It is pure, bounded on any input, and does not panic on any.
package envoy
