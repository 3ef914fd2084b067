package access

import (
	"crypto/sha256"
	"sync"
	"time"
)

// Bounds of a [Limiter].
const (
	limitBurst  = 10              // failed attempts of an owner that are looked at all at once
	limitRefill = time.Second     // after which one more is
	maxOwners   = 1024            // owners that are remembered
	maxKnown    = 4096            // tokens that are remembered
	sweepEvery  = 1 * time.Second // how often owners that have waited long enough are forgotten
)

// RetryAfter is how long who was refused by a [Limiter] has to wait.
const RetryAfter = limitRefill

// Limiter bounds how many wrong tokens are verified: verifying one takes as long for a wrong token
// as for a right one. An owner ([Peer.Owner]) that has failed ten times at once gets one attempt a
// second. A token that was right before is not held up by wrong ones, also where all come from one
// address.
//
//	if !l.Allow(owner, text) {
//		// refuse without looking at the token
//	}
//	if _, err := verify(text); err != nil {
//		l.Failed(owner, text)
//	} else {
//		l.Verified(text)
//	}
//
// The zero value is ready. It is safe for concurrent use, starts no goroutine, and its size is
// bounded: owners beyond 1024 share one allowance.
type Limiter struct {
	mu     sync.Mutex
	owners map[string]bucket
	rest   bucket // of the owners for whom there is no place
	swept  time.Time
	known  map[[sha256.Size]byte]struct{}
}

// bucket counts failed attempts; one is forgotten after limitRefill.
type bucket struct {
	failed float64
	at     time.Time
}

// now is how many failures count at a time.
func (b bucket) now(t time.Time) float64 {
	return max(0, b.failed-t.Sub(b.at).Seconds()/limitRefill.Seconds())
}

// Allow says whether a token of an owner is verified now. One that was right before always is: it
// may have ended since.
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

// Failed counts a wrong token of an owner.
func (l *Limiter) Failed(owner, text string) {
	h := sha256.Sum256([]byte(text))
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, h) // one that was right and is no longer
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

// sweep forgets the owners whose failures no longer count.
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

// Verified remembers a token that is right, by its hash.
func (l *Limiter) Verified(text string) {
	h := sha256.Sum256([]byte(text))
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[h]; ok {
		return
	}
	if l.known == nil || len(l.known) >= maxKnown {
		l.known = map[[sha256.Size]byte]struct{}{} // only right tokens get in, so that nobody can do this on purpose
	}
	l.known[h] = struct{}{}
}
