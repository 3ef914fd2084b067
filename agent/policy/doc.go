// Package policy decides which policies act on a proxy and what they say together.
//
// An [Index] holds the policies of one mesh, ranked. [Index.Match] selects those of one proxy and resolves what they
// refer to; [Match.Rules] merges them into rules: for the proxy, for each inbound, for each outbound and for each real
// service, every rule with its origins in the order in which they were merged. A [Plugin] is one folder below
// agent/kinds: the kinds that it declares, and what they do to the draft of a proxy.
//
// The package knows no kind by its meaning. It is pure: the same resources give the same rules, in any order of input.
package policy
