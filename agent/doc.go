// Package agent is the daemon: its construction and one run group.
//
// [New] puts the parts together and [Agent.Run] runs them until its context ends. Two agents
// live in one process when their paths differ. Promises:
//
//   - Everything that is stored or lies in the resource directory is loaded before a socket opens.
//   - Bad input never stops the agent or another proxy: the last good content stays in force and
//     the fault becomes a status that names the file, the resource and the field.
//   - Run returns only after every goroutine of the agent has ended; its sockets are gone, its
//     locks free.
//   - A second agent on the same state directory or socket is refused with the process id of the
//     first.
package agent
