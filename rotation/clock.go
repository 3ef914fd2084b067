package rotation

import (
	"time"

	"golang.org/x/sys/unix"
)

// Backups are removed for their age by the clock. If it moves ahead, they all look old.
const (
	// clockJump is how far the clock may move ahead, beyond the time that has passed.
	clockJump = time.Hour
	// distrustFor is how long no backup is removed for its age after a jump. A clock that is still
	// ahead by then is right.
	distrustFor = 24 * time.Hour
)

// clock detects jumps of the clock.
type clock struct {
	wall          time.Time // without the monotonic time
	monotonic     time.Time
	boot          time.Duration // includes the time in which the system was suspended
	distrustUntil time.Time
}

// trusted reports whether the clock has not moved ahead lately.
func (c *clock) trusted(wall time.Time) bool {
	now := clock{wall: wall.Round(0), monotonic: time.Now(), boot: sinceBoot(), distrustUntil: c.distrustUntil}
	if !c.wall.IsZero() {
		passed := max(now.monotonic.Sub(c.monotonic), now.boot-c.boot)
		if now.wall.Sub(c.wall)-passed > clockJump {
			now.distrustUntil = now.monotonic.Add(distrustFor)
		}
	}
	*c = now
	return !c.monotonic.Before(c.distrustUntil)
}

// sinceBoot returns the time since the system has started, or 0 if it is unknown.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// limits returns the limits of backups. They have no age if the clock has moved ahead lately. f.mu
// is held.
func (f *File) limits() Limits {
	l := f.opts.Limits
	if !f.clock.trusted(f.opts.Now()) {
		l.MaxFileAge = 0
	}
	return l
}
