package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
)

// forwardRecord is the size up to which lines wait as one record.
const forwardRecord = 64 << 10

// forwardLine bounds a line; sources send none that is longer.
const forwardLine = 1 << 20

// ForwarderOptions are those of a [Forwarder]. Address must be set.
type ForwarderOptions struct {
	Name    string // for messages; "" is the address
	Address string // of the collector, host:port; the host is resolved anew for each connection
	Spool   Options
	// Dial makes a connection; nil is that of net.Dialer, by TCP. What is no TCP connection
	// acknowledges nothing, so lines count as acknowledged once they are written.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Log  *slog.Logger // nil discards
}

// Forwarder is a [accesslog.Destination] that sends lines to a collector over TCP, in their order:
// from memory while the collector takes them, and else from a spool on disk.
//
// A line counts as written once the collector's kernel has acknowledged it. What a collector has
// acknowledged and not read when it ends is lost, which nobody can see in plain TCP; what it has
// not acknowledged is sent again. Outside of Linux lines count as acknowledged when this kernel has
// taken them.
type Forwarder struct {
	opts    ForwarderOptions
	backlog *Backlog
	log     *slog.Logger
	running atomic.Bool
	end     sync.Once
	fault   atomic.Pointer[string] // why the collector is not there
}

// NewForwarder opens the spool. Lines are sent while Run runs; before that they wait.
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
	b, err := NewBacklog(opts.Spool, forwardRecord, log)
	if err != nil {
		return nil, err
	}
	return &Forwarder{opts: opts, backlog: b, log: log}, nil
}

// CheckAddress refuses what cannot be dialled.
func CheckAddress(field, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		var n uint64
		if n, err = strconv.ParseUint(port, 10, 16); n == 0 {
			err = errors.New("no port")
		}
	}
	if err != nil || host == "" {
		return fmt.Errorf("%s: %q is not host:port; give a name or an address, and a port from 1 to 65535", field, address)
	}
	return nil
}

// ErrForwarding is for a second Run.
var ErrForwarding = errors.New("the forwarder is run by another call, or has ended; run it once")

// Run sends lines until ctx ends. It then waits up to a second for what is on its way, puts what is
// left in memory on the disk, and closes the spool. Sources are to be stopped before.
func (f *Forwarder) Run(ctx context.Context) error {
	if f.running.Swap(true) {
		return ErrForwarding
	}
	var err error
	f.end.Do(func() { err = f.backlog.Run(ctx, f.send) })
	return err
}

// Close ends a forwarder that was not run. What waits is on the disk then.
func (f *Forwarder) Close() error {
	if f.running.Swap(true) {
		return ErrForwarding
	}
	var err error
	f.end.Do(func() {
		f.backlog.Close()
		err = f.backlog.Finish()
	})
	return err
}

// Discard lets Run or Close drop what waits when they end, for [accesslog.CauseRemoved], and remove
// the spool's directory.
func (f *Forwarder) Discard() { f.backlog.Discard() }

// Write implements [accesslog.Destination]. It never waits for the collector: only for room with
// [Block], and up to a second for a disk that has stopped taking lines, once until it takes
// some.
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

var errUnterminated = errors.New("the batch does not end in LF; add one or keep the last line back")

// nextPiece returns the lines that go into one record, or the begin of a line that is too long for
// one.
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

// wholeLines is the length of the lines of a batch up to a place; a line that was taken in part is
// to be given again.
func wholeLines(batch []byte, done int) int { return bytes.LastIndexByte(batch[:done], '\n') + 1 }

// Flush waits until what has come before is acknowledged, on the disk or dropped, so that none of
// it is in memory alone.
func (f *Forwarder) Flush(ctx context.Context) error { return f.backlog.flush(ctx) }

// Stats returns exact counts. It never waits.
func (f *Forwarder) Stats() accesslog.Stats {
	s := f.backlog.Stats(time.Now())
	if fault := f.fault.Load(); fault != nil && s.Health == "" {
		s.Health = *fault
	}
	return s
}

// setFault says why the collector is not there; nil ends that.
func (f *Forwarder) setFault(err error) {
	if err == nil {
		if f.fault.Swap(nil) != nil {
			f.log.Info("forwarder: the collector is there again", "address", f.opts.Address)
		}
		return
	}
	text := "the collector " + f.opts.Address + " does not take lines: " + err.Error() +
		"; they wait, look after the collector"
	if f.fault.Swap(&text) == nil {
		f.log.Warn("forwarder: the collector does not take lines; they wait", "address", f.opts.Address, "error", err)
	}
}
