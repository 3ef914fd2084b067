// Package hold keeps files of the agent open while it restarts: FIFOs, so that writers neither
// block nor lose data, and listening sockets, which the next agent takes over. systemd's
// descriptor store holds the files if it accepts them, otherwise a separate process that runs
// [Serve].
//
// Each file has a name. If a new agent holds the same file under the same name, the held file
// stays; if it holds another file under this name, that one replaces it.
package hold
