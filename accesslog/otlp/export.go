package otlp

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// Limits of an export.
const (
	exportTimeout = 10 * time.Second
	exportBytes   = 512 << 10 // bytes of requests merged into one
	exportRecords = 512
	exportAnswer  = 64 << 10
	// maxDelay limits the delay that an endpoint may request.
	maxDelay = 5 * time.Minute
)

// exporter sends the requests of a route to its endpoint.
type exporter struct {
	route    Route
	backlog  *spool.Backlog
	conn     caller
	log      *slog.Logger
	refusals refusals
	fault    atomic.Pointer[string]
	highest  uint64 // highest record number ever sent; used only by send

	cancel context.CancelFunc // set by start
	ended  chan struct{}
	err    error // set before ended is closed
}

func newExporter(route Route, log *slog.Logger) (*exporter, error) {
	log = log.With("destination", route.Name)
	conn, err := newCaller(route.Endpoint)
	if err != nil {
		return nil, err
	}
	b, err := spool.NewBacklog(route.Spool, 0, log)
	if err != nil {
		return nil, errors.Join(err, conn.close())
	}
	return &exporter{route: route, backlog: b, conn: conn, log: log, ended: make(chan struct{})}, nil
}

func (e *exporter) run(ctx context.Context) error {
	return errors.Join(e.backlog.Run(ctx, e.send), e.conn.close())
}

// end closes an exporter that was never started.
func (e *exporter) end() error {
	e.backlog.Close()
	return errors.Join(e.backlog.Finish(), e.conn.close())
}

func (e *exporter) stats() accesslog.Stats {
	s := e.backlog.Stats(time.Now())
	if fault := e.fault.Load(); fault != nil && s.Health == "" {
		s.Health = *fault
	}
	return s
}

// send exports records until ctx ends.
func (e *exporter) send(ctx context.Context) {
	b := e.backlog
	var next *spool.Record // taken, but not in a batch yet
	single := 0            // records to send one by one, because the endpoint rejected them as a batch
	tries := 0
	var stop time.Time
	for {
		batch := e.batch(&next, single > 0)
		if len(batch) == 0 {
			if !e.await(ctx) {
				return
			}
			continue
		}
		rejected, after, err := e.export(ctx, batch)
		last := batch[len(batch)-1]
		switch {
		case err == nil:
			b.Ack(last.Last(), last.At, rejected)
			b.SetDown(false)
			e.setFault(nil)
			tries, single = 0, max(single-1, 0)
			if ctx.Err() == nil {
				continue
			}
			if stop.IsZero() {
				stop = time.Now().Add(spool.StopGrace)
			}
			if b.Spooled() || time.Now().After(stop) {
				return
			}
		case after < 0 && len(batch) > 1: // one record may be the cause
			single = len(batch)
			next = nil
			b.Rewind()
			continue
		case after < 0:
			e.log.Warn("otlp: records dropped: the endpoint rejects them permanently", "records", last.Lines, "error", err)
			b.Ack(last.Last(), last.At, last.Lines)
			tries, single = 0, max(single-1, 0)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		next = nil
		b.Rewind()
		b.SetDown(true)
		e.setFault(err)
		if after == 0 {
			after = spool.Jitter(tries)
		}
		if !spool.Pause(ctx, after) {
			return
		}
		e.conn.reset()
		tries++
	}
}

// await waits for records, and returns false if ctx ends. It also returns after a second if the
// spool could not be read, for a retry.
func (e *exporter) await(ctx context.Context) bool {
	var retry <-chan time.Time
	if e.backlog.ReadFailed() {
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		retry = timer.C
	}
	select {
	case <-e.backlog.Ready:
	case <-retry:
	case <-ctx.Done():
		return false
	}
	return true
}

// clipMessage shortens a message of an endpoint for the log.
func clipMessage(s string) string {
	const limit = 200
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

// batch takes the records of one request.
func (e *exporter) batch(next **spool.Record, single bool) (out []*spool.Record) {
	var size int
	var records uint64
	for {
		r := *next
		if *next = nil; r == nil {
			r = e.backlog.Take()
		}
		if r == nil {
			return out
		}
		if len(out) > 0 && (single || size+len(r.Payload()) > exportBytes || records+r.Lines > exportRecords) {
			*next = r
			return out
		}
		out, size, records = append(out, r), size+len(r.Payload()), records+r.Lines
	}
}

// export sends a batch. With an error it returns the delay before a retry: 0 for the default
// backoff, negative for no retry.
func (e *exporter) export(ctx context.Context,
	batch []*spool.Record) (rejected uint64, after time.Duration, err error) {
	request := batch[0].Payload()
	if len(batch) > 1 {
		request = nil
		for _, r := range batch {
			request = append(request, r.Payload()...) // concatenated messages are valid: the only field is repeated
		}
	}
	first, last := batch[0].First, batch[len(batch)-1].Last()
	if first <= e.highest {
		e.backlog.Count.Repeated.Add(min(last, e.highest) - first + 1)
	}
	e.highest = max(e.highest, last)
	// A request in flight when ctx ends may still be answered.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if spool.Pause(call, spool.StopGrace) {
			cancel()
		}
	})()
	raw, after, err := e.conn.call(call, request)
	if err != nil {
		return 0, after, err
	}
	rejected, message := parseAnswer(raw)
	if rejected = min(rejected, last-first+1); rejected > 0 {
		e.log.Warn("otlp: the endpoint rejected records", "records", rejected, "error", clipMessage(message))
	}
	return rejected, 0, nil
}

func (e *exporter) setFault(err error) {
	if err == nil {
		e.fault.Store(nil)
		return
	}
	text := "the endpoint " + e.route.Endpoint + " does not accept records: " + status.Convert(err).Message() +
		"; they are spooled. Check the collector"
	if e.fault.Swap(&text) == nil {
		e.log.Warn("otlp: the endpoint does not accept records; they are spooled", "endpoint", e.route.Endpoint, "error", err)
	}
}
