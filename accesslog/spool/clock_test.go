package spool_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// TestSpoolOfAWrongClock spools lines while the clock is a year ahead. After a restart with the
// right time, no line is lost, and the lines expire like others.
func TestSpoolOfAWrongClock(t *testing.T) {
	options := spool.ForwarderOptions{Address: away, Dial: noDial,
		Spool: spool.Options{Dir: spoolDir(t), MaxAge: time.Hour}}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(365 * 24 * time.Hour) // each bubble begins at the same time
		f := newForwarder(t, options)
		stop := run(t, f)
		write(t, f, numbered(0, 10))
		time.Sleep(10 * time.Minute)
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		f := newForwarder(t, options)
		stop := run(t, f)
		time.Sleep(40 * time.Minute)
		if s := f.Stats(); s.Spooled != 10 || s.SpoolOldest > 2401 || s.Dropped[accesslog.CauseSpoolAge] != 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(21 * time.Minute)
		if s := f.Stats(); s.Spooled != 0 || s.Dropped[accesslog.CauseSpoolAge] != 10 {
			t.Errorf("%+v", s)
		}
		stop()
	})
}
