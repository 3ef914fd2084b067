// Package spool holds records for a collector in order: in bounded memory, and on disk while the
// collector is away. A [Forwarder] sends lines from a spool over TCP.
//
// What is in a spool survives the process. Records leave it when the collector has acknowledged
// them, or when a limit drops them, which is counted by cause.
package spool
