package zones_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/deliver/zones"
)

// upstreams answers about suffixes after a delay, and records the questions.
type upstreams struct {
	mu      sync.Mutex
	start   time.Time
	delay   time.Duration
	answers map[string]names.Evidence
	asked   []string // seconds since the start, and the suffix
	at      int      // number of questions in flight
	most    int
}

func (u *upstreams) ask(ctx context.Context, suffix string) names.Evidence {
	u.mu.Lock()
	u.asked = append(u.asked, fmt.Sprintf("%.0f %s", time.Since(u.start).Seconds(), suffix))
	u.at++
	u.most = max(u.most, u.at)
	delay := u.delay
	u.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at--
	if e, ok := u.answers[suffix]; ok {
		return e
	}
	return names.NoAnswer
}

// slow sets the time until answers. It returns the largest number of questions that were in flight.
func (u *upstreams) slow(delay time.Duration) (most int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.delay = delay
	return u.most
}

func (u *upstreams) set(suffix string, e names.Evidence) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answers[suffix] = e
}

// questions returns the questions since the last call.
func (u *upstreams) questions() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	slices.Sort(u.asked)
	out := strings.Join(u.asked, ", ")
	u.asked = nil
	return out
}

// run runs an asker inside a bubble with a fake clock, until the returned function is called.
func run(t *testing.T) (u *upstreams, a *zones.Asker, changes *int, end func()) {
	u, changes = &upstreams{start: time.Now(), answers: map[string]names.Evidence{}}, new(int)
	a = zones.New(u.ask, func() { *changes++ })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { a.Run(ctx); close(done) }()
	return u, a, changes, func() { cancel(); <-done }
}

func TestAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, a, changes, end := run(t)
		defer end()
		u.set("a.example", names.HasNone)
		u.set("b.example", names.HasZone)
		a.Set([]string{"a.example", "b.example", "silent.example"})
		synctest.Wait()
		want := map[string]names.Evidence{"a.example": names.HasNone, "b.example": names.HasZone,
			"silent.example": names.NoAnswer}
		if got := a.Evidence(); !maps.Equal(got, want) || *changes != 3 {
			t.Errorf("%v after %d changes, want %v", got, *changes, want)
		}
		if got := u.questions(); got != "0 a.example, 0 b.example, 0 silent.example" {
			t.Errorf("the first questions: %s", got)
		}
		time.Sleep(zones.Interval - time.Second)
		synctest.Wait()
		if got := u.questions(); got != "15 silent.example, 155 silent.example, 35 silent.example, "+
			"5 silent.example, 75 silent.example" {
			t.Errorf("without an answer: %s", got)
		}
		u.set("a.example", names.NoAnswer)
		u.set("b.example", names.HasNone)
		time.Sleep(time.Second)
		synctest.Wait()
		// a.example retains its last answer.
		if got := a.Evidence(); got["a.example"] != names.HasNone || got["b.example"] != names.HasNone || *changes != 4 {
			t.Errorf("after the second questions: %v, %d changes", got, *changes)
		}
		u.questions()
		u.set("silent.example", names.HasName)
		a.Repeat()
		synctest.Wait()
		if got := a.Evidence()["silent.example"]; got != names.HasName || u.questions() == "" {
			t.Errorf("after Repeat: %v", got)
		}
		a.Set([]string{"b.example"})
		if got := a.Evidence(); len(got) != 1 {
			t.Errorf("answers about removed suffixes remain: %v", got)
		}
		time.Sleep(2 * zones.Interval)
		synctest.Wait()
		if got := u.questions(); strings.Contains(got, "silent") || !strings.Contains(got, "b.example") {
			t.Errorf("after a removal: %s", got)
		}
	})
}

// TestAskerIsBounded checks the number of questions at once, also while they have no answer, and
// that the end of the context ends them.
func TestAskerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, a, _, end := run(t)
		defer end()
		u.slow(4 * time.Second)
		var list []string
		for i := range names.MaxAsked {
			list = append(list, fmt.Sprintf("s%d.example", i))
		}
		a.Set(list)
		time.Sleep(time.Minute)
		most := u.slow(time.Hour)
		if n := len(a.Evidence()); n != names.MaxAsked || most != 8 {
			t.Errorf("%d answers, %d questions at once", n, most)
		}
		time.Sleep(2 * zones.Interval)
	})
}
