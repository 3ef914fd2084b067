package engine

import "time"

// HLC is a hybrid logical clock: milliseconds since 1970 in the upper 48 bits, a counter in the
// lower 16.
type HLC uint64

// wall returns the HLC of a time, with the counter at 0.
func wall(t time.Time) HLC { return HLC(max(t.UnixMilli(), 0)) << 16 }

// Time returns the wall-clock part.
func (h HLC) Time() time.Time { return time.UnixMilli(int64(h >> 16)) }

// next returns the HLC of a change that is made now to what has the HLC parent: greater than parent
// whatever the clock says, so that an edit made after seeing a version always wins over it.
func next(now time.Time, parent HLC) HLC { return max(wall(now), parent+1) }
