// Package accesslog defines what its packages for access-log lines share: the [Destination] of
// lines, their counts, and how a stream of bytes is cut into lines. Lines come in by fifo and
// receive, log records by otlp. They go to rotated files, or to collectors by spool and otlp. A
// record is the bytes up to and with an LF; what it says does not matter here. Of this module,
// these packages import only each other and rotation.
//
// Promises, as long as the process and its file systems live:
//
//   - A line that has been read reaches its [Destination] whole and in the order of its source, or
//     is dropped for a cause that is counted. [Stats] holds for every stream: In = Written +
//     Spooled + Dropped + InFlight.
//   - No line of one source is mixed with that of another, whatever a source sends or wherever it
//     stops.
//   - A destination that is slow or gone never holds up the others, and never the reading of a
//     FIFO.
//   - Memory is bounded by the number of sources, not by what they send.
package accesslog
