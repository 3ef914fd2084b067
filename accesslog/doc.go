// Package accesslog defines the types that its packages for access logs share: the [Destination]
// of lines, their counters, and the splitting of a byte stream into lines. Lines come in through
// packages fifo and receive, log records through otlp. They go to rotated files, or to collectors
// through spool and otlp. A record is the bytes up to and including an LF; its content does not
// matter here. Within this module, these packages import only each other and rotation.
//
// Guarantees, as long as the process and its file systems work:
//
//   - A line that has been read reaches its [Destination] whole and in the order of its source, or
//     is dropped and counted by cause. For every stream, [Stats] satisfies In = Written + Spooled +
//     Dropped + InFlight.
//   - Lines of different sources are never mixed, regardless of what a source sends or where it
//     stops.
//   - A slow or missing destination never delays other destinations, and never blocks the reading
//     of a FIFO.
//   - Memory is bounded by the number of sources, not by the amount of data.
package accesslog
