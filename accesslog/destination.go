package accesslog

import "context"

// Destination takes lines and brings them to where they are kept. Its methods may be called at the
// same time.
//
// *rotation.File is one that may wait: while its disk is full, Write blocks. A [spool.Forwarder]
// never waits for its collector.
type Destination interface {
	// Write takes whole lines, each ending in LF, and returns how many of the bytes are done with:
	// stored, spooled or, with their cause counted, dropped. The count ends at the end of a line. The
	// error is that of ctx, or says that the destination is closed. The batch is neither changed nor
	// kept.
	Write(ctx context.Context, batch []byte) (int, error)
}

// Appender is a [Destination] that drops lines by itself and tells whose they were. *rotation.File
// is one.
type Appender interface {
	// Append is Write, and returns too how many lines of what is done with were dropped.
	Append(ctx context.Context, batch []byte) (n, dropped int, err error)
}
