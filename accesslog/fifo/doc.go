// Package fifo makes FIFOs that processes write access logs into, reads them, and hands whole lines
// to an [accesslog.Destination].
//
// Lines leave a FIFO only after they have been handed on, so the next process finds what a killed
// one did not finish. A destination that waits never holds up the reading: lines then wait in
// bounded memory, and are dropped and counted when that is full.
package fifo
