package agent

import (
	"testing"
	"time"
)

// TestClock checks that a clock that was never set is an error, and one that was set back a
// warning.
func TestClock(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		now, started, last time.Time
		degraded, err      bool
	}{
		{now, now.Add(-time.Hour), now.Add(time.Second), false, false},
		{now, now.Add(-time.Hour), time.Time{}, false, false},
		{now, now.Add(time.Hour), now, true, false},
		{now, now.Add(-time.Hour), now.Add(time.Minute), true, false},
		{time.Unix(1000, 0), time.Unix(0, 0), time.Unix(0, 0), true, true},
	} {
		got := clockCheck(c.now, c.started, c.last)
		if !got.OK || got.Degraded != c.degraded || got.Error != c.err {
			t.Errorf("at %s: %+v", c.now, got)
		}
	}
}
