package agent

import "time"

// debounce waits for a quiet time after a burst of events, and no longer than a ceiling after the first of them. It
// belongs to one goroutine.
type debounce struct {
	C <-chan time.Time // has a value when it is time to act

	quiet, ceiling time.Duration
	timer          *time.Timer
	latest         time.Time // when to act at the latest; zero while nothing is due
}

func newDebounce(quiet, ceiling time.Duration) *debounce {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &debounce{C: t.C, quiet: quiet, ceiling: ceiling, timer: t}
}

// due notes an event.
func (d *debounce) due() {
	now := time.Now()
	if d.latest.IsZero() {
		d.latest = now.Add(d.ceiling)
	}
	d.timer.Reset(min(d.quiet, d.latest.Sub(now)))
}

// done says that everything noted so far is being acted on.
func (d *debounce) done() {
	d.latest = time.Time{}
	d.timer.Stop()
}

func (d *debounce) stop() { d.timer.Stop() }
