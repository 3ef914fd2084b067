// Package hold keeps open files of the agent while it is away: FIFOs, so that those who write into
// them neither hang nor lose anything, and listening sockets, which the next agent takes back. They
// are held by the descriptor store of systemd where there is one that takes them, and else by a
// process of its own, which [Serve] runs.
//
// A file has a name. What an earlier agent has kept under a name is still kept when this one keeps
// the same file under it, and given up when it is another file.
package hold
