// Package explain says why a proxy behaves as it does.
//
// A [Proxy] explains policies: which policies select a dataplane, which of their fields are in
// effect, and which fields override the others. A [Traffic] explains connections and requests: the
// path through the proxies of both ends, the choice at each step and the rejected candidates, the
// policies behind each choice, and, for a denied connection, a policy change that would allow it.
//
// An explanation makes no decisions itself: it queries package policy, reads finished rules, and
// lets package match follow finished configs. The package does not know policy kinds by name:
// plugins report which policies are behind a step and which changes to suggest. A change is
// suggested only after a check that it allows the same connection or request.
//
// Documents are stable (fields are added, never renamed or removed), the same input gives the same
// bytes, and each denial has a reason in words. The package is pure.
package explain
