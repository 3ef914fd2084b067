// Package accesslog takes lines of access logs in, from TCP and unix sockets and from FIFOs, and
// brings them to files that are rotated or to collectors elsewhere. It knows nothing of what the
// lines say: a record is the bytes up to and with an LF. It imports no package of this module but
// rotation.
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
