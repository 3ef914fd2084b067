// Package agent implements the daemon: its construction and its run group.
//
// [New] connects the parts, and [Agent.Run] runs them until its context ends. Two agents can run in
// one process if their paths differ. Guarantees:
//
//   - The store and the resource directory are loaded before a socket opens.
//   - Invalid input never stops the agent or other proxies: the last valid content stays in force,
//     and the status names the file, the resource, and the field.
//   - Run returns only after every goroutine of the agent has ended. It has then removed its
//     sockets and released its locks.
//   - A second agent with the same state directory or socket fails with the process ID of the
//     first.
package agent
