package record

import "time"

// HLC is a hybrid logical clock: milliseconds since 1970 in the upper 48 bits, and a counter in the
// lower 16 bits.
type HLC uint64

// Wall returns the HLC of a time, with counter 0.
func Wall(t time.Time) HLC { return HLC(max(t.UnixMilli(), 0)) << 16 }

// Time returns the wall-clock time.
func (h HLC) Time() time.Time { return time.UnixMilli(int64(h >> 16)) }

// Next returns the HLC of a change at time now whose parent version has the HLC parent. It is
// always greater than parent, so an edit wins over the version that its author saw.
func Next(now time.Time, parent HLC) HLC { return max(Wall(now), parent+1) }
