package accesslog

import "context"

// Destination stores or forwards lines. Its methods are safe for concurrent use.
//
// *rotation.File may block: Write waits while its disk is full. A [spool.Forwarder] never waits for
// its collector.
type Destination interface {
	// Write takes whole lines, each ending in LF. It returns how many bytes were stored, spooled, or
	// dropped and counted; the number always ends at a line. The error is that of ctx, or means that
	// the destination is closed. Write neither modifies nor retains the batch.
	Write(ctx context.Context, batch []byte) (int, error)
}

// Appender is a [Destination] that drops lines and reports how many. *rotation.File is an Appender.
type Appender interface {
	// Append is like Write. It also returns how many of the processed lines were dropped.
	Append(ctx context.Context, batch []byte) (n, dropped int, err error)
}
