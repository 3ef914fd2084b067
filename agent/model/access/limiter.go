package access

import (
	"crypto/sha256"
	"sync"
	"time"
)

// Limits of a [Limiter].
const (
	limitBurst  = 10              // failed attempts of an owner before it is limited
	limitRefill = time.Second     // time to regain one attempt
	spareRate   = 100             // attempts per second of all owners above their limits together
	maxOwners   = 1024            // tracked owners
	maxKnown    = 4096            // tracked valid tokens
	sweepEvery  = 1 * time.Second // interval at which idle owners are removed
)

// RetryAfter is the time after which a peer that a [Limiter] rejected may retry.
const RetryAfter = limitRefill

// Limiter limits the verification of invalid tokens, which costs as much as that of valid ones. An
// owner ([Peer.Owner]) with ten failed attempts gets one attempt per second. Invalid tokens do not
// delay a token that was valid before, even from the same address. Owners above their limit share
// 100 more attempts per second, so other valid tokens from the address of an attacker are accepted
// too, unless the invalid ones use up this allowance.
//
//	if !l.Allow(owner, text) {
//		// reject without verifying the token
//	}
//	if _, err := verify(text); err != nil {
//		l.Failed(owner, text) // reject; true: as without verification
//	} else {
//		l.Verified(text)
//	}
//
// The zero value is ready to use. A Limiter is safe for concurrent use, starts no goroutine, and
// has a bounded size: owners beyond 1024 share one allowance.
type Limiter struct {
	mu     sync.Mutex
	owners map[string]bucket
	rest   bucket // shared by owners beyond maxOwners
	spare  bucket // shared by owners above their limits
	swept  time.Time
	known  map[[sha256.Size]byte]struct{}
}

// bucket counts failed attempts. The count decreases by one per limitRefill.
type bucket struct {
	failed float64
	at     time.Time
}

// now returns the number of failures that still count.
func (b bucket) now(t time.Time) float64 {
	return max(0, b.failed-t.Sub(b.at).Seconds()/limitRefill.Seconds())
}

// fail adds a failure, unless the limit is reached. Then it returns true.
func (b *bucket) fail(t time.Time) bool {
	n := b.now(t)
	if n > limitBurst-1 {
		return true
	}
	*b = bucket{n + 1, t}
	return false
}

// Allow reports whether a token of an owner may be verified now. A token that was valid before
// always may, because it may have expired since.
func (l *Limiter) Allow(owner, text string) bool {
	h := sha256.Sum256([]byte(text))
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[h]; ok {
		return true
	}
	b, ok := l.owners[owner]
	if !ok && len(l.owners) >= maxOwners {
		b = l.rest
	}
	now := time.Now()
	if b.now(now) <= limitBurst-1 {
		return true
	}
	used := max(0, l.spare.failed-now.Sub(l.spare.at).Seconds()*spareRate)
	if used > spareRate-1 {
		return false
	}
	l.spare = bucket{used + 1, now}
	return true
}

// Failed records an invalid token of an owner, and reports whether the owner was above its limit
// before.
func (l *Limiter) Failed(owner, text string) (limited bool) {
	h := sha256.Sum256([]byte(text))
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, h) // a token that was valid before
	t := time.Now()
	b, ok := l.owners[owner]
	if !ok && len(l.owners) >= maxOwners {
		l.sweep(t)
		if len(l.owners) >= maxOwners {
			return l.rest.fail(t)
		}
	}
	if l.owners == nil {
		l.owners = map[string]bucket{}
	}
	limited = b.fail(t)
	l.owners[owner] = b
	return limited
}

// sweep removes owners whose failures no longer count.
func (l *Limiter) sweep(t time.Time) {
	if t.Sub(l.swept) < sweepEvery {
		return
	}
	l.swept = t
	for owner, b := range l.owners {
		if b.now(t) == 0 {
			delete(l.owners, owner)
		}
	}
}

// Verified records the hash of a valid token.
func (l *Limiter) Verified(text string) {
	h := sha256.Sum256([]byte(text))
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[h]; ok {
		return
	}
	if l.known == nil || len(l.known) >= maxKnown {
		l.known = map[[sha256.Size]byte]struct{}{} // only valid tokens are added, so an attacker cannot force this
	}
	l.known[h] = struct{}{}
}
