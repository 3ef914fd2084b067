package rollout

import (
	"testing"
	"time"
)

// TestRetryAfter: what may pass is tried again after 5 s, 10 s and so on up to 5 min; other changes
// do not count as attempts.
func TestRetryAfter(t *testing.T) {
	now := time.Unix(0, 0)
	r := resourcesNamed("l")[0]
	var was *rejection
	for i, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		next := schedule(was, r, "l: cannot bind '127.0.0.1:80': Address already in use", now)
		if next.attempt != i+1 || next.at.Sub(now) != want*time.Second {
			t.Errorf("attempt %d after %v, want %d after %v", next.attempt, next.at.Sub(now), i+1, want*time.Second)
		}
		was = &rejection{resource: r, reason: "l: in use", retry: next}
		if unchanged := schedule(was, r, "cannot bind", now.Add(time.Second)); unchanged != next {
			t.Errorf("with another change: %+v, want %+v", unchanged, next)
		}
		was.retry.sent = true
	}
	if (schedule(nil, r, "nonsense", now) != retry{}) {
		t.Error("a permanent failure is retried")
	}
	if got := (&rejection{reason: "r", retry: retry{attempt: 2, at: now.Add(10 * time.Second)}}).reasonAt(
		now.Add(3 * time.Second)); got != "r; rejected, tried again in 7 s (attempt 2)" {
		t.Errorf("said %q", got)
	}
}
