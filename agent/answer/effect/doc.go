// Package effect says whether policies are in force, and which of their fields.
//
// A policy, or a field of one, is in force on a proxy exactly where leaving it out changes bytes of
// the proxy's published config. An [Examiner] generates the config without it, and compares.
//
// The package is pure. Each answer generates configs, so use it to answer questions, not in the
// reconcile loop.
package effect
