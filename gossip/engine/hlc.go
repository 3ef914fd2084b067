package engine

import "time"

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
