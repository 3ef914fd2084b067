// Package sockets opens DNS sockets that stay open while the agent restarts, so queries wait for
// the next agent instead of being refused.
//
// The sockets of an address come from socket units of systemd, or from the process that holds the
// sockets of the previous agent. Missing ones are opened. Held sockets have names with the address
// and the network namespace, and are used only if they match their names.
package sockets
