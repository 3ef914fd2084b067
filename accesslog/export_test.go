package accesslog

import (
	"log/slog"
	"time"
)

// What fuzz targets and benchmarks need of what is not exported.
var (
	ParseCursor  = parseCursor
	AppendCursor = appendCursor
	CountRecords = countRecords
	ParseAnswer  = parseAnswer
)

// AppendRecords puts batches into a spool.
func AppendRecords(opts SpoolOptions, batch []byte, n int) error {
	s, _, err := openSpool(opts.normalized())
	if err != nil {
		return err
	}
	b := &backlog{opts: s.opts, spool: s, next: 1, log: slog.New(slog.DiscardHandler)}
	b.unsynced, b.work, b.ready, b.room = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1),
		make(chan struct{})
	r := newRecord(len(batch), time.Now())
	r.buf = append(r.buf, batch...)
	r.lines = countLines(batch)
	for i := range n {
		r.first = b.next
		b.next += r.lines
		b.mem = append(b.mem[:0], r)
		b.memBytes = cap(r.buf) + recordCost
		b.spillOne()
		if i%128 == 127 {
			b.mu.Lock()
			b.done = r.last()
			b.sweep()
			b.mu.Unlock()
			b.dispose()
			for _, f := range b.retired {
				f.Close()
			}
			b.retired = nil
		}
	}
	b.close()
	if err := b.finish(); err != nil {
		return err
	}
	return nil
}
