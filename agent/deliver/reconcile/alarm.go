package reconcile

import "time"

// maxSleep limits the sleep of an alarm: timers stop while a machine is suspended, and clocks can
// be set.
const maxSleep = time.Minute

// alarm fires at a wall-clock time. It is not safe for concurrent use.
type alarm struct {
	C     <-chan time.Time // receives a value when rings must be called
	now   func() time.Time
	timer *time.Timer
	at    time.Time
}

func newAlarm(now func() time.Time) *alarm {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &alarm{C: t.C, now: now, timer: t}
}

// set sets the alarm; the zero time disables it.
func (a *alarm) set(at time.Time) {
	a.at = at
	if at.IsZero() {
		a.timer.Stop()
		return
	}
	a.timer.Reset(max(0, min(at.Sub(a.now()), maxSleep)))
}

// rings reports whether the time has come. If not, it continues to wait.
func (a *alarm) rings() bool {
	if a.at.IsZero() || a.now().Before(a.at) {
		a.set(a.at)
		return false
	}
	return true
}

func (a *alarm) Stop() { a.timer.Stop() }
