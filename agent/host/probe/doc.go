// Package probe looks at what around an Envoy breaks it without a word in its config: files that it
// may not open, limits of its process, name servers that have changed.
//
// A [Prober] is asked by the loop that makes configs and looks in a goroutine of its own, so that a
// file system which hangs holds nobody up. It looks when an Envoy connects or gets another config,
// and after that every few seconds; it tells when something has changed. What it cannot see it says
// nothing about.
package probe
