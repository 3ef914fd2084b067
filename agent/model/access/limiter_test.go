package access_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// attempts returns how many of n invalid tokens of an owner would be verified by its own allowance.
// The others may be verified by the shared one.
func attempts(l *access.Limiter, owner string, n int) (verified int) {
	for i := range n {
		if text := fmt.Sprint("wrong", i); l.Allow(owner, text) {
			if !l.Failed(owner, text) {
				verified++
			}
		}
	}
	return verified
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l access.Limiter
		if got := attempts(&l, "uid 7", 10_000); got != 10 {
			t.Errorf("%d wrong tokens at once are verified, want 10", got)
		}
		if !l.Allow("uid 8", "wrong") {
			t.Error("another owner is held up")
		}
		verified := 0
		for range 100 { // 10,000 per second for 10 s
			time.Sleep(100 * time.Millisecond)
			verified += attempts(&l, "uid 7", 1000)
		}
		if verified != 10 {
			t.Errorf("%d wrong tokens in 10 s are verified, want 10", verified)
		}
		time.Sleep(time.Second)
		attempts(&l, "uid 7", 20)
		if !l.Allow("uid 7", "a valid token of another process") {
			t.Error("another right token of an owner with wrong ones is held up")
		}
		attempts(&l, "uid 7", 1000)
		l.Verified("right")
		if !l.Allow("uid 7", "right") || l.Allow("uid 7", "wrong") {
			t.Error("a token that was right is held up, or another one is not")
		}
		l.Failed("uid 9", "right")
		if l.Allow("uid 7", "right") {
			t.Error("a token that is right no longer is not held up")
		}
		time.Sleep(time.Minute)
		if got := attempts(&l, "uid 7", 100); got != 10 {
			t.Errorf("a minute later %d are verified, want 10", got)
		}
	})
}

// TestLimiterIsBounded checks that owners beyond the limit share one allowance.
func TestLimiterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l access.Limiter
		verified := 0
		for i := range 50_000 {
			verified += attempts(&l, fmt.Sprintf("address 2001:db8::%x", i), 1)
		}
		if verified != 1024+10 {
			t.Errorf("%d are verified, want one of each of 1024 and 10 of the others", verified)
		}
		if !l.Allow("address 2001:db8::1", "wrong") {
			t.Error("one that is remembered is held up by the others")
		}
		time.Sleep(time.Minute)
		for i := range 1000 {
			if attempts(&l, fmt.Sprintf("uid %d", i), 1) != 1 {
				t.Fatal("the owners of before keep new ones out")
			}
		}
		for i := range 10_000 {
			l.Verified(fmt.Sprint(i))
		}
		attempts(&l, "uid 7", 100)
		if !l.Allow("uid 7", "9999") {
			t.Error("the last right token is held up")
		}
	})
}

// BenchmarkLimiter measures the rejection of an invalid token without verification.
func BenchmarkLimiter(b *testing.B) {
	var l access.Limiter
	attempts(&l, "address 127.0.0.1", 20)
	text := fmt.Sprintf("%0400d", 1)
	for b.Loop() {
		if l.Allow("address 127.0.0.1", text) {
			l.Failed("address 127.0.0.1", text)
		}
	}
}
