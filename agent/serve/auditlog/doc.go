// Package auditlog writes audit events to a rotated file, and handles failures. It guarantees:
//
//   - Only a request that has changed something waits for the disk, for at most [Options.Patience]:
//     [Log.Store] returns after the event was written to the file. All other events are written in
//     the background, within moments.
//   - While the file accepts no events, [Log.Ready] returns an error, and the API refuses writes.
//     The events of reads, files, and Envoys wait in memory, up to [Options.Memory] bytes. Further
//     events are dropped and counted. When the file accepts events again, an event reports how many
//     are missing.
//   - A file that cannot be opened is retried every few seconds.
//
// The package starts no goroutine. The caller runs [Log.Run] and [Log.Maintain] in separate
// goroutines.
package auditlog
