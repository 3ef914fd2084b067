package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// forwardRecord is the size up to which lines are merged into one record.
const forwardRecord = 64 << 10

// forwardLine limits the length of a line. Sources do not send longer ones.
const forwardLine = 1 << 20

// ForwarderOptions configures a [Forwarder]. Address is required.
type ForwarderOptions struct {
	Name    string // for log messages; default: Address
	Address string // host:port of the collector; the name is resolved for each connection
	Spool   Options
	// Dial opens a connection; nil: net.Dialer. Connections that are not TCP have no acknowledgments,
	// so lines count as acknowledged when written.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Log  *slog.Logger // nil: no logs
}

// Forwarder is an [accesslog.Destination] that sends lines in order to a collector over TCP, from
// memory while the collector is available, otherwise from a spool on disk.
//
// A line counts as written when the collector's kernel has acknowledged it; other lines are sent
// again. If a collector fails before it reads acknowledged lines, they are lost: plain TCP cannot
// detect that.
type Forwarder struct {
	opts    ForwarderOptions
	backlog *Backlog
	log     *slog.Logger
	ended   atomic.Bool            // Run or Close was called
	fault   atomic.Pointer[string] // why the collector is unavailable
}

// NewForwarder opens the spool. Lines are sent while Run is active.
func NewForwarder(opts ForwarderOptions) (*Forwarder, error) {
	if err := CheckAddress("address", opts.Address); err != nil {
		return nil, err
	}
	if opts.Name == "" {
		opts.Name = opts.Address
	}
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{Control: SetUserTimeout}).DialContext
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	log := opts.Log.With("destination", opts.Name)
	opts.Spool.Marker, opts.Spool.Where = rotation.MarkerLine, opts.Address
	b, err := NewBacklog(opts.Spool, forwardRecord, log)
	if err != nil {
		return nil, err
	}
	return &Forwarder{opts: opts, backlog: b, log: log}, nil
}

// CheckAddress returns an error if an address is not host:port.
func CheckAddress(field, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		var n uint64
		if n, err = strconv.ParseUint(port, 10, 16); n == 0 {
			err = errors.New("no port")
		}
	}
	if err != nil || host == "" {
		return fmt.Errorf("%s: %q is not host:port; set a host name or IP address, and a port from 1 to 65535",
			field, address)
	}
	return nil
}

// Run sends lines until ctx ends. Then it waits up to StopGrace for acknowledgments, writes lines
// in memory to disk, and closes the spool. Stop sources first.
func (f *Forwarder) Run(ctx context.Context) error {
	if f.ended.Swap(true) {
		return errors.New("Run or Close was already called")
	}
	return f.backlog.Run(ctx, f.send)
}

// Close closes a forwarder without running it. Lines in memory go to disk. After Run, it does
// nothing.
func (f *Forwarder) Close() error {
	if f.ended.Swap(true) {
		return nil
	}
	f.backlog.Close()
	return f.backlog.Finish()
}

// Discard makes Run or Close drop remaining lines with [accesslog.CauseRemoved] and remove the
// directory of the spool.
func (f *Forwarder) Discard() { f.backlog.Discard() }

// Write implements [accesslog.Destination]. It never waits for the collector. It waits for space
// only with [Block], and up to a second for a blocked disk, once until the disk works again.
func (f *Forwarder) Write(ctx context.Context, batch []byte) (int, error) {
	if len(batch) == 0 {
		return 0, nil
	}
	if batch[len(batch)-1] != '\n' {
		return 0, errUnterminated
	}
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}
	done := 0
	for done < len(batch) {
		piece, cut := nextPiece(batch[done:])
		if cut {
			f.backlog.Count.Oversize.Add(1)
			piece = append(bytes.Clone(piece), '\n')
		}
		if _, err := f.backlog.Put(ctx, piece, accesslog.CountLines(piece)); err != nil {
			return wholeLines(batch, done), err
		}
		if done += len(piece); cut {
			done--
		}
	}
	return done, nil
}

var errUnterminated = errors.New("the batch does not end in LF")

// nextPiece returns the lines of the next record, or the beginning of a line that is too long.
func nextPiece(batch []byte) (piece []byte, cut bool) {
	if len(batch) <= forwardRecord {
		return batch, false
	}
	if i := bytes.LastIndexByte(batch[:forwardRecord], '\n'); i >= 0 {
		return batch[:i+1], false
	}
	if i := bytes.IndexByte(batch[:min(len(batch), forwardLine+1)], '\n'); i >= 0 {
		return batch[:i+1], false
	}
	return batch[:forwardLine], true
}

// wholeLines returns the length of the whole lines in batch[:done]. The caller must repeat a line
// that was accepted only in part.
func wholeLines(batch []byte, done int) int { return bytes.LastIndexByte(batch[:done], '\n') + 1 }

// Flush waits until all earlier lines are acknowledged, on disk, or dropped.
func (f *Forwarder) Flush(ctx context.Context) error { return f.backlog.flush(ctx) }

// Stats returns exact counts. It does not block.
func (f *Forwarder) Stats() accesslog.Stats {
	s := f.backlog.Stats(time.Now())
	if fault := f.fault.Load(); fault != nil && s.Health == "" {
		s.Health = *fault
	}
	return s
}

// setFault sets the reason why the collector is unavailable; nil clears it.
func (f *Forwarder) setFault(err error) {
	if err == nil {
		if f.fault.Swap(nil) != nil {
			f.log.Info("forwarder: the collector is available again", "address", f.opts.Address)
		}
		return
	}
	text := "the collector " + f.opts.Address + " does not accept lines: " + err.Error() +
		"; they are spooled. Check the collector"
	if f.fault.Swap(&text) == nil {
		f.log.Warn("forwarder: the collector does not accept lines; they are spooled",
			"address", f.opts.Address, "error", err)
	}
}
