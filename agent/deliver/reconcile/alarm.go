package reconcile

import "time"

// lookAtClock bounds how long an alarm sleeps: timers stand still while a machine is suspended, and
// clocks are set.
const lookAtClock = time.Minute

// alarm goes off at a time of the clock on the wall. It belongs to one goroutine.
type alarm struct {
	C     <-chan time.Time // has a value when it is time to ask rings
	now   func() time.Time
	timer *time.Timer
	at    time.Time
}

func newAlarm(now func() time.Time) *alarm {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &alarm{C: t.C, now: now, timer: t}
}

// set sets the alarm; the zero time is never.
func (a *alarm) set(at time.Time) {
	a.at = at
	if at.IsZero() {
		a.timer.Stop()
		return
	}
	a.timer.Reset(max(0, min(at.Sub(a.now()), lookAtClock)))
}

// rings reports whether the time has come, and goes on waiting if not.
func (a *alarm) rings() bool {
	if a.at.IsZero() || a.now().Before(a.at) {
		a.set(a.at)
		return false
	}
	return true
}

func (a *alarm) Stop() { a.timer.Stop() }
