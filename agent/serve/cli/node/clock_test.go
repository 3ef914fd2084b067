package node

import (
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

func TestClock(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		now, started, made time.Time
		state              string
	}{
		{now, now.Add(-time.Hour), now.Add(time.Second), CheckOK},
		{now, now.Add(time.Hour), now, checkWarn},
		{now, now.Add(-time.Hour), now.Add(time.Minute), checkWarn},
		{time.Unix(1000, 0), time.Unix(0, 0), time.Unix(0, 0), checkFail},
	} {
		s := &api.Status{Reconcile: &api.ReconcileStatus{At: c.made}}
		s.Info.Started = c.started
		got := &selfTest{OK: true}
		checkClock(got, s, c.now)
		if len(got.Checks) != 1 || got.Checks[0].State != c.state || got.OK == (c.state == checkFail) {
			t.Errorf("at %s: %+v, want %s", c.now, got, c.state)
		}
	}
}
