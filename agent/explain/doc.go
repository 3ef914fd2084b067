// Package explain says why a proxy behaves as it does.
//
// A [Proxy] explains policies: which select a dataplane, which of their fields are in force and which others took their
// place. A [Traffic] explains connections and requests: the way of one through the proxies of both ends, what was chosen
// at each step and what fell, the policies behind it, and for a "no" the change of a policy that would make it a "yes".
//
// An explanation reads what was decided and decides nothing itself: it asks package policy, looks into finished rules,
// and has package envoy follow finished configs. A change is suggested only when the same question, asked of a mesh with
// it, is answered with yes. The package promises that its documents are stable (fields are added, never renamed or removed), that the same input
// gives the same bytes, and that every "no" comes with a reason in words. The package is pure.
package explain
