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
	maxOwners   = 1024            // tracked owners
	maxKnown    = 4096            // tracked valid tokens
	sweepEvery  = 1 * time.Second // interval at which idle owners are removed
)

// RetryAfter is the time after which a peer that a [Limiter] rejected may retry.
const RetryAfter = limitRefill

// Limiter limits the verification of invalid tokens, which costs as much as that of valid ones. An
// owner ([Peer.Owner]) with ten failed attempts gets one attempt per second. Invalid tokens do not
// delay a token that was valid before, even from the same address.
//
//	if !l.Allow(owner, text) {
//		// reject without verifying the token
//	}
//	if _, err := verify(text); err != nil {
//		l.Failed(owner, text)
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
	return b.now(time.Now()) <= limitBurst-1
}

// Failed records an invalid token of an owner.
func (l *Limiter) Failed(owner, text string) {
	h := sha256.Sum256([]byte(text))
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, h) // a token that was valid before
	t := time.Now()
	b, ok := l.owners[owner]
	if !ok && len(l.owners) >= maxOwners {
		l.sweep(t)
		if len(l.owners) >= maxOwners {
			l.rest = bucket{min(l.rest.now(t)+1, limitBurst), t}
			return
		}
	}
	if l.owners == nil {
		l.owners = map[string]bucket{}
	}
	l.owners[owner] = bucket{min(b.now(t)+1, limitBurst), t}
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
