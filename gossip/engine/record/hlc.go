package record

import (
	"fmt"
	"time"
)

// HLC is a hybrid logical clock: the era in the upper 6 bits, milliseconds since 1970 in the next
// 42 bits, and a counter in the lower 16 bits.
type HLC uint64

const (
	eraShift = 58
	dateMask = 1<<eraShift - 1
)

// Wall returns the HLC of a time, with era and counter 0.
func Wall(t time.Time) HLC { return HLC(min(max(t.UnixMilli(), 0), 1<<42-1)) << 16 }

// Era returns the era. A later era outranks every date of an earlier one; see package heal.
func (h HLC) Era() uint8 { return uint8(h >> eraShift) }

// Time returns the wall-clock time.
func (h HLC) Time() time.Time { return time.UnixMilli(int64(h.Date() >> 16)) }

// Date returns the HLC without its era, to compare it with the date of another era.
func (h HLC) Date() HLC { return h & dateMask }

// Next returns the HLC of a change at time now in an era whose parent version has the HLC parent.
// It is always greater than parent, so an edit wins over the version that its author saw. The
// change has the era of a parent of a later era.
func Next(now time.Time, era uint8, parent HLC) (HLC, error) {
	era = max(era, parent.Era())
	h := max(HLC(era)<<eraShift|Wall(now), parent+1)
	if h.Era() != era {
		return 0, fmt.Errorf("the date %s is the last one of era %d: run nearside pool heal",
			parent.Time().UTC().Format(time.RFC3339), era)
	}
	return h, nil
}
