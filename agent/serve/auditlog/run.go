package auditlog

import (
	"context"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
)

// Run writes events until ctx ends, and then the rest. Call it once.
func (l *Log) Run(ctx context.Context) {
	retry := time.NewTicker(openEvery)
	defer retry.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-retry.C:
		}
		if l.Profile() != audit.ProfileNone {
			l.open()
		}
		l.write(ctx)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if l.pending() {
		l.open()
	}
	l.write(stop)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over = true; l.events > 0 {
		l.opts.Log.Error("the audit log lost events that could not be written before the agent stopped",
			"events", l.events)
		l.drop(l.events, droppedStopped)
		l.lines, l.linked, l.events, l.waiters = nil, 0, 0, nil
	}
}

// pending reports whether events wait to be written.
func (l *Log) pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events > 0
}

// write writes all pending lines. Lines that cannot be written before ctx ends return to the front
// of the queue.
func (l *Log) write(ctx context.Context) {
	f := l.file.Load()
	if f == nil {
		return
	}
	if l.relimit.Swap(false) {
		if err := f.SetLimits(*l.limits.Load()); err != nil {
			l.opts.Log.Error("cannot change the limits of the audit log", "error", err)
		}
	}
	for {
		lines, linked, events, waiters := l.take()
		if len(lines) == 0 {
			l.landed()
			return
		}
		lines = l.link(lines, linked)
		n, err := f.Write(ctx, lines)
		l.stored(lines[:n])
		if err != nil {
			l.requeue(lines, n, events, waiters)
			return
		}
		l.landed()
		l.written.Add(float64(events))
		for _, w := range waiters {
			close(w)
		}
	}
}

// requeue returns the lines after the first n bytes to the front of the queue.
func (l *Log) requeue(lines []byte, n, events int, waiters []chan struct{}) {
	stored := 0
	for _, c := range lines[:n] {
		if c == '\n' {
			stored++
		}
	}
	l.written.Add(float64(stored))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.linked = len(lines) - n
	l.lines = append(append(make([]byte, 0, len(lines)-n+len(l.lines)), lines[n:]...), l.lines...)
	l.events += events - stored
	l.waiters = append(waiters, l.waiters...)
	l.flying, l.since = 0, time.Time{}
}

// Maintain rotates the file by age until ctx ends. Call it once, and stop it after [Log.Run].
func (l *Log) Maintain(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-l.opened:
	}
	f := l.file.Load()
	if err := f.Run(ctx); err != nil {
		l.opts.Log.Error("rotation of the audit log failed", "error", err)
	}
	<-ctx.Done()
}

// Close closes the file after Run and Maintain have returned.
func (l *Log) Close() error {
	if f := l.file.Load(); f != nil {
		return f.Close()
	}
	return nil
}
