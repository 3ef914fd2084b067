package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// parked is a record dated in the future.
type parked struct {
	record *Record
	since  time.Time // wall time at which this node received it
}

// park stores a record dated in the future until that time, and forwards it, so peers have it then
// even if its writer is gone. If there are too many, those that take effect last are dropped.
func (e *Engine) park(r *Record, from string) {
	h := r.Head()
	if old := e.parked[h.Slot]; old != nil {
		if !old.record.Version().Less(h.Version) {
			return
		}
		e.unpark(h.Slot)
	}
	size := len(r.Encoded())
	for len(e.parked) >= e.cfg.Limits.Parked || e.parkedBytes+size > e.cfg.Limits.Bytes/16 {
		last := e.latestParked()
		if last == nil || last.HLC.Date() <= r.HLC.Date() {
			e.refuseRecord(r, whyParkedFull)
			return
		}
		e.unpark(last.Key.Slot())
		e.refuseRecord(last, whyParkedFull)
	}
	e.parkedBytes += size
	e.parked[h.Slot] = &parked{r, e.wall}
	e.write(bucketParked, string(h.Slot[:]), append(putTime(e.wall), r.Encoded()...))
	e.news = append(e.news, news{slot: h.Slot, from: from, parked: true})
	e.count("parked")
	e.note("future",
		fmt.Sprintf("%s is dated %s, which is in the future; it takes effect then. Check the clocks of the nodes",
			r.Key, r.HLC.Time().UTC().Format(time.RFC3339)))
}

// latestParked returns the record that takes effect last, or nil.
func (e *Engine) latestParked() (last *Record) {
	for _, p := range e.parked {
		if last == nil || last.HLC.Date() < p.record.HLC.Date() ||
			last.HLC.Date() == p.record.HLC.Date() && last.Version().Less(p.record.Version()) {
			last = p.record
		}
	}
	return last
}

func (e *Engine) unpark(slot Slot) {
	e.parkedBytes -= len(e.parked[slot].record.Encoded())
	delete(e.parked, slot)
	e.write(bucketParked, string(slot[:]), nil)
}

// releaseParked merges parked records whose time has come.
func (e *Engine) releaseParked() {
	limit := record.Wall(e.poolTime().Add(maxSkew))
	for _, slot := range sortedSlots(e.parked) {
		r := e.parked[slot].record
		if r.HLC.Date() > limit {
			continue
		}
		e.unpark(slot)
		if e.admit(r, "", e.agreed) {
			e.news = append(e.news, news{slot: slot})
		}
	}
}

// loadParked restores a saved parked record.
func (e *Engine) loadParked(value []byte) error {
	if len(value) < 8 {
		return errors.New("parked record is truncated")
	}
	r, err := e.loadRecord(value[8:])
	if err == nil {
		e.parked[r.Key.Slot()] = &parked{r, getTime(value[:8])}
		e.parkedBytes += len(r.Encoded())
	}
	return err
}
