package auditlog_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/auditlog"
	"github.com/nearside-mesh/nearside/rotation"
)

// TestClockAYearAheadAndBack sets the clock a year ahead and back while the agent runs, and then
// while it is stopped. No event is lost, and the chain is intact. No file is removed for its age
// while the agent runs. A stopped agent cannot know whether a year has passed.
func TestClockAYearAheadAndBack(t *testing.T) {
	const year = 365 * 24 * time.Hour
	c := newChained(t)
	synctest.Test(t, func(t *testing.T) {
		c.t = t
		var ahead atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		stored := 0
		write := func(l *auditlog.Log) {
			t.Helper()
			e := event()
			e.At, e.Received, e.UserAgent = now(), now(), strings.Repeat("x", 1<<10)
			for range 1200 { // more than a file
				l.Record(e)
			}
			if err := l.Store(e); err != nil {
				t.Fatal(err)
			}
			stored += 1201
			time.Sleep(2 * time.Minute) // the directory is read again
		}
		for _, running := range []bool{true, false} {
			open := func() (*auditlog.Log, func()) {
				limits := rotation.Limits{MaxFileSize: 1}
				if running {
					limits.MaxFileAge = 7
				}
				return run(t, auditlog.Options{Path: c.path, State: c.state, Profile: audit.ProfileDefault, Now: now,
					Limits: limits})
			}
			l, stop := open()
			for _, by := range []time.Duration{0, year, 0, -year, 0} {
				ahead.Store(int64(by))
				if !running {
					stop()
					l, stop = open()
				}
				write(l)
				if alarm := l.Alarm(); alarm != "" && !strings.Contains(alarm, "have a time in the future") {
					t.Errorf("%s: %s", by, alarm)
				}
			}
			stop()
		}
		o := auditlog.VerifyOptions{Path: c.path, Now: now()}
		o.Record, _ = auditlog.ReadRecord(c.state)
		r, err := auditlog.Verify(o)
		if err != nil || !r.Intact || r.Events != stored || r.First != 1 {
			t.Errorf("%d events: %+v %v", stored, r, err)
		}
	})
}

// TestAlarmEndsWithoutTheClock: the alarm about dropped events ends after an hour, also if the
// clock is set back meanwhile.
func TestAlarmEndsWithoutTheClock(t *testing.T) {
	c := newChained(t)
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		l, stop := run(t, auditlog.Options{Path: c.path, Profile: audit.ProfileDefault, Memory: 1,
			Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		defer stop()
		l.Record(event())
		ahead.Store(-int64(365 * 24 * time.Hour))
		if alarm := l.Alarm(); !strings.Contains(alarm, "lost events") {
			t.Errorf("alarm %q", alarm)
		}
		time.Sleep(time.Hour + time.Second)
		if alarm := l.Alarm(); alarm != "" {
			t.Errorf("after an hour: %s", alarm)
		}
	})
}
