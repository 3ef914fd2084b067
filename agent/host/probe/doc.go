// Package probe examines the environment of an Envoy for problems that its config does not show:
// files that it cannot open, limits of its process, and changed name servers.
//
// The loop that computes configs queries a [Prober], which works in a separate goroutine, so a
// hanging file system does not block the loop. It examines an Envoy when it connects or gets a new
// config, and every few seconds after that, and reports changes. It reports only
// problems that it could determine.
package probe
