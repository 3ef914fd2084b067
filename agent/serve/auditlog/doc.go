// Package auditlog writes the events of the audit log into a rotated file, and decides what happens
// where that fails.
//
// Promises:
//
//   - Nobody waits for the disk but a request that has changed something, and that one
//     [Options.Patience] at most: its event is handed to the system before [Log.Store] returns. All
//     others are written behind, within moments.
//   - While the file takes no events, [Log.Ready] says so, and the API refuses writes. Everything
//     else goes on: the events of reads, files and Envoys wait in memory, up to [Options.Memory]
//     bytes; then they are dropped and counted, and once the file takes events again, an event says
//     how many are missing.
//   - A file that cannot be opened is tried again every few seconds.
//
// The package starts no goroutine. [Log.Run] and [Log.Keep] are called in one each by whoever opens
// the log.
package auditlog
