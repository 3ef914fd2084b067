package rollout

import (
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
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

// subscription is a subscription to names. Its maps must not be read while the handler changes
// them, which is without a lock.
type subscription struct {
	t        *testing.T
	names    map[string]struct{}
	changing bool
}

func (s *subscription) SubscribedResources() map[string]struct{} {
	if s.changing {
		s.t.Error("the subscription is read while it changes")
	}
	return s.names
}

func (s *subscription) SubscribedPrefixes() map[string]struct{} { return nil }
func (s *subscription) IsWildcard() bool                        { return false }

// TestChangingSubscription reads the status, and makes a retry, while the handler changes the
// subscription.
func TestChangingSubscription(t *testing.T) {
	const rank = draft.RankRoute
	sub := &subscription{t, map[string]struct{}{"a": {}}, true}
	st := &Stream{subscribing: true}
	w := &typeWatch{stream: st, rank: rank, sub: sub, base: resourcesNamed("a", "b"), quietFor: "v"}
	st.watches[rank] = w
	var s syncState
	s.status(rank).Resources = 7
	s.sentBy[rank] = w
	read := func() int {
		s.countResources()
		return s.types[rank].Resources
	}
	if n := read(); n != 7 {
		t.Errorf("%d resources are counted, want the number of before", n)
	}
	st.retry(retryName{rank, "a"})
	st.retry(retryName{rank, "b"})
	if len(w.over) > 0 {
		t.Errorf("a retry is made: %v", w.over)
	}
	sub.changing, st.subscribing = false, false
	st.retryDeferred()
	if _, ok := w.over["a"]; !ok || len(w.over) != 1 || w.quietFor != "" || len(st.retries) > 0 {
		t.Errorf("the deferred retries are %v, left are %v", w.over, st.retries)
	}
	if n := read(); n != 1 {
		t.Errorf("%d resources are counted, want 1", n)
	}
}
