// Package bucket limits rates.
package bucket

import "time"

// Bucket is a token bucket. It is not safe for concurrent use.
type Bucket struct {
	rate, burst, level float64
	at                 time.Time
}

// New returns a full bucket for rate tokens per second, and up to burst at once.
func New(rate, burst float64, now time.Time) Bucket { return Bucket{rate, burst, burst, now} }

// Empty reports whether there is no whole token.
func (b *Bucket) Empty(now time.Time) bool {
	b.Take(now, 0)
	return b.level < 1
}

// Take removes n tokens if there are enough, and reports whether it did.
func (b *Bucket) Take(now time.Time, n float64) bool {
	if d := now.Sub(b.at).Seconds(); d > 0 {
		b.level = min(b.burst, b.level+d*b.rate)
	}
	b.at = now
	if b.level < n {
		return false
	}
	b.level -= n
	return true
}
