// Package fifo creates FIFOs for access logs, reads them, and passes whole lines to an
// [accesslog.Destination].
//
// Lines are removed from a FIFO only after delivery, so the next process finds the unfinished lines
// of a killed one. A blocked destination never blocks reading: lines then wait in memory, and are
// dropped and counted when the memory limit is reached.
package fifo
