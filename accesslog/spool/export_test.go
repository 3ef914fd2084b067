package spool

import (
	"log/slog"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Unexported functions used by fuzz targets and benchmarks.
var (
	ParseCursor  = parseCursor
	AppendCursor = appendCursor
)

// AppendRecords writes n batches to a spool.
func AppendRecords(opts Options, batch []byte, n int) error {
	s, _, err := openSpool(opts.normalized())
	if err != nil {
		return err
	}
	b := &Backlog{opts: s.opts, spool: s, next: 1, log: slog.New(slog.DiscardHandler)}
	b.unsynced, b.work, b.Ready, b.freed = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1),
		make(chan struct{})
	r := newRecord(len(batch), time.Now())
	r.buf = append(r.buf, batch...)
	r.Lines = accesslog.CountLines(batch)
	for i := range n {
		r.First = b.next
		b.next += r.Lines
		b.mem = append(b.mem[:0], r)
		b.memBytes = cap(r.buf) + recordCost
		b.spillOne()
		if i%128 == 127 {
			b.mu.Lock()
			b.done = r.Last()
			b.sweep()
			b.mu.Unlock()
			b.dispose()
			for _, f := range b.retired {
				f.Close()
			}
			b.retired = nil
		}
	}
	b.Close()
	if err := b.Finish(); err != nil {
		return err
	}
	return nil
}
