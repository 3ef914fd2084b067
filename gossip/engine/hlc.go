package engine

import (
	"slices"
	"time"
)

// Now is the present time on two clocks.
type Now struct {
	Wall time.Time     // may jump in either direction; used only for times that outlive the process
	Mono time.Duration // since a fixed time before the start; never jumps
}

// instant returns the monotonic time as a value that can be compared with those of other calls. The
// zero time.Time is long before all of them.
func (n Now) instant() time.Time { return time.Unix(0, 0).Add(n.Mono) }

// HLC is a hybrid logical clock: milliseconds since 1970 in the upper 48 bits, and a counter in the
// lower 16 bits.
type HLC uint64

// wall returns the HLC of a time, with counter 0.
func wall(t time.Time) HLC { return HLC(max(t.UnixMilli(), 0)) << 16 }

// Time returns the wall-clock time.
func (h HLC) Time() time.Time { return time.UnixMilli(int64(h >> 16)) }

// next returns the HLC of a change at time now whose parent version has the HLC parent. It is
// always greater than parent, so an edit wins over the version that its author saw.
func next(now time.Time, parent HLC) HLC { return max(wall(now), parent+1) }

// skew returns the offset of the peers' clocks from a local time, or 0 below 2 s and if too few
// clocks are known. poolClock counts from the monotonic clock, so it stays valid when the local
// clock is set.
func (e *Engine) skew(wall, mono time.Time) time.Duration {
	if e.poolClock == 0 {
		return 0
	}
	if d := e.poolClock - wall.Sub(mono); d > minSkew || d < -minSkew {
		return d
	}
	return 0
}

// poolTime returns the time according to most peers, or to the local clock if fewer than three
// peers are known. It is used to date, park, and expire records, so a node with a wrong clock does
// not miss changes or forget deletions.
func (e *Engine) poolTime() time.Time { return e.wall.Add(e.skew(e.wall, e.now)) }

// medianClock returns the median clock of the peers minus the monotonic time, or 0 with fewer than
// three peers.
func (e *Engine) medianClock() time.Duration {
	var all []time.Duration
	for _, m := range e.alive {
		if p := e.peers[m]; !p.heard.IsZero() && e.now.Sub(p.heard) < clockFor {
			all = append(all, p.clock)
		}
	}
	if len(all) < 3 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
