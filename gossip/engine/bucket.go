package engine

import "time"

// bucket is a token bucket.
type bucket struct {
	rate, burst, level float64
	at                 time.Time
}

// take removes n tokens if there are enough, and reports whether it did.
func (b *bucket) take(now time.Time, n float64) bool {
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
