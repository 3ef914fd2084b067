// Package spool stores records for a collector in order: in bounded memory, and on disk while the
// collector is unavailable. A [Forwarder] sends lines from a spool over TCP.
//
// Records on disk survive the process. A record is removed when the collector has acknowledged it,
// or when a limit is exceeded; dropped lines are counted by cause.
package spool
