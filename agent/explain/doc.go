// Package explain says why a proxy has the config that it has: which policies select it, which of their fields are in
// force and which others took their place.
//
// An explanation reads what was decided and decides nothing itself: it asks package policy, and looks into finished
// rules. It promises that its documents are stable (fields are added, never renamed or removed), that the same input
// gives the same bytes, and that every "no" comes with a reason in words. The package is pure.
package explain
