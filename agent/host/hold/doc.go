// Package hold keeps files of the agent open while it is down: FIFOs, so that writers neither
// block nor lose data, and listening sockets, which the next agent takes over with their waiting
// connections. A separate process that runs [Serve] holds the files: a unit of systemd, a
// container, or a child of the agent that outlives it.
//
// Each file has a name. If a new agent holds the same file under the same name, the held file
// stays; if it holds another file under this name, that one replaces it.
package hold
