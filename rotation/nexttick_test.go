package rotation_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// TestNextTick checks that loops that begin at different times wait for the same times, and that an
// interval is never 0.
func TestNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 500 * time.Millisecond
		if d := rotation.NextTick(interval); d != interval {
			t.Errorf("%s at a multiple, want %s", d, interval)
		}
		end := time.Now().Add(interval)
		for range 3 {
			time.Sleep(110 * time.Millisecond)
			if at := time.Now().Add(rotation.NextTick(interval)); !at.Equal(end) {
				t.Errorf("the next tick is at %s, want %s", at, end)
			}
		}
	})
}
