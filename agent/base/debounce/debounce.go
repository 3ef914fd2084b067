// Package debounce waits for a quiet time after a burst of events.
package debounce

import "time"

// Timer waits for a quiet time after a burst of events, and no longer than a ceiling after the
// first of them. It belongs to one goroutine.
type Timer struct {
	C <-chan time.Time // has a value when it is time to act

	quiet, ceiling time.Duration
	timer          *time.Timer
	latest         time.Time // when to act at the latest; zero while nothing is due
}

// New returns a timer that acts after quiet, and at the latest ceiling after the first event.
func New(quiet, ceiling time.Duration) *Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &Timer{C: t.C, quiet: quiet, ceiling: ceiling, timer: t}
}

// Due notes an event.
func (d *Timer) Due() { d.DueIn(d.quiet) }

// DueIn is Due for an event that waits for another time than the quiet time where no other one
// waits already.
func (d *Timer) DueIn(wait time.Duration) {
	now := time.Now()
	if d.latest.IsZero() {
		d.latest = now.Add(d.ceiling)
	} else {
		wait = d.quiet
	}
	d.timer.Reset(max(0, min(wait, d.latest.Sub(now))))
}

// Done says that everything noted so far is being acted on.
func (d *Timer) Done() {
	d.latest = time.Time{}
	d.timer.Stop()
}

// Stop ends the timer.
func (d *Timer) Stop() { d.timer.Stop() }
