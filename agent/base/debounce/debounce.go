// Package debounce waits for a quiet period after a burst of events.
package debounce

import "time"

// Timer waits for a quiet period after events, but not longer than a ceiling after the first one.
// It is not safe for concurrent use.
type Timer struct {
	C <-chan time.Time // receives a value when the wait is over

	quiet, ceiling time.Duration
	timer          *time.Timer
	latest         time.Time // latest time to act; zero if no event is pending
}

// New returns a timer with the given quiet period and ceiling.
func New(quiet, ceiling time.Duration) *Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &Timer{C: t.C, quiet: quiet, ceiling: ceiling, timer: t}
}

// Due records an event.
func (d *Timer) Due() { d.DueIn(d.quiet) }

// DueIn records an event with a different wait. The quiet period applies if another event is
// already pending.
func (d *Timer) DueIn(wait time.Duration) {
	now := time.Now()
	if d.latest.IsZero() {
		d.latest = now.Add(d.ceiling)
	} else {
		wait = d.quiet
	}
	d.timer.Reset(max(0, min(wait, d.latest.Sub(now))))
}

// Done clears all recorded events, because the caller handles them now.
func (d *Timer) Done() {
	d.latest = time.Time{}
	d.timer.Stop()
}

// Stop stops the timer.
func (d *Timer) Stop() { d.timer.Stop() }
