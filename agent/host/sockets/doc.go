// Package sockets opens the sockets of DNS so that they outlive the agent: who asks while it
// restarts waits for the next one instead of being refused.
//
// Sockets of an address come from socket units of systemd, else from whoever holds those of the
// agent before, and are opened else. They are told apart by names that hold the address and the
// network namespace, and are used only if they are what the name says.
package sockets
