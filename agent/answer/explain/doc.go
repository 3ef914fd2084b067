// Package explain says why a proxy behaves as it does.
//
// A [Proxy] explains policies: which select a dataplane, which of their fields are in force and
// which others took their place. A [Traffic] explains connections and requests: the way of one
// through the proxies of both ends, what was chosen at each step and what was not, the policies
// behind it, and for one that is denied the change of a policy that allows it.
//
// An explanation reads what was decided and decides nothing itself: it asks package policy, looks
// into finished rules, and has package match follow finished configs. No kind of policies is known
// here by name: what a step follows from and what may be suggested, plugins say. A change is
// suggested only when the same connection or request is allowed with it. The package promises that
// its documents are stable (fields are added, never renamed or removed), that the same input gives
// the same bytes, and that every denial has a reason in words. The package is pure.
package explain
