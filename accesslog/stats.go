package accesslog

import "sync/atomic"

// Cause is the reason for dropped lines. It is a metric label, so the set is small and fixed.
type Cause string

// Causes of drops.
const (
	CauseSpoolFull Cause = "spool-full" // the spool reached its size limit
	CauseSpoolAge  Cause = "spool-age"  // the lines exceeded the maximum age in the spool
	CauseSpoolBad  Cause = "spool-bad"  // a segment of the spool is damaged
	CauseDiskFull  Cause = "disk-full"  // the file or the spool could not be written
	CauseRejected  Cause = "rejected"   // the collector rejected the lines permanently
	CauseStopped   Cause = "stopped"    // the stop timeout was exceeded
	CauseRemoved   Cause = "removed"    // the destination was removed
)

// Causes lists all causes.
var Causes = [...]Cause{CauseSpoolFull, CauseSpoolAge, CauseSpoolBad, CauseDiskFull, CauseRejected, CauseStopped,
	CauseRemoved}

// causes lists the causes in the order of counters.dropped.
var causes = [...]Cause{CauseSpoolFull, CauseSpoolAge, CauseSpoolBad, CauseDiskFull, CauseRejected, CauseStopped,
	CauseRemoved}

// Stats holds the counters of one stream since its creation. They are read without locks, so they
// may be slightly inconsistent. Without traffic, In = Written + Spooled + InFlight + the sum of
// Dropped.
type Stats struct {
	In       uint64           `json:"in"` // lines read
	BytesIn  uint64           `json:"bytesIn"`
	Written  uint64           `json:"written"`           // lines in the file, or acknowledged by the collector
	Spooled  uint64           `json:"spooled"`           // lines on disk that wait for the collector
	InFlight uint64           `json:"inFlight"`          // lines in memory
	Dropped  map[Cause]uint64 `json:"dropped,omitempty"` // lines
	// Unterminated lines had no LF when their connection or writer ended. They get one here.
	Unterminated uint64 `json:"unterminated,omitempty"`
	// Oversize lines exceeded the maximum length and were split.
	Oversize uint64 `json:"oversize,omitempty"`
	// Repeated lines were sent to a collector more than once, because it had not acknowledged them.
	Repeated uint64 `json:"repeated,omitempty"`
	// SpoolBytes are on disk. SpoolOldest is the age of the oldest line in seconds.
	SpoolBytes  uint64  `json:"spoolBytes,omitempty"`
	SpoolOldest float64 `json:"spoolOldestSeconds,omitempty"`
	// DirChanges counts how often the directory of the file, FIFO, or spool was removed, replaced, or
	// made unsafe, and was opened again.
	DirChanges uint64 `json:"dirChanges,omitempty"`
	// Health is "" without problems. Otherwise it describes the problem and a remedy.
	Health string `json:"health,omitempty"`
	// Full is set if the problem is a full disk or quota.
	Full bool `json:"full,omitempty"`
}

// Counters holds the counters behind Stats. InFlight is derived and has no counter.
type Counters struct {
	In, BytesIn, Written, Spooled    atomic.Uint64
	unterminated, Oversize, Repeated atomic.Uint64
	dropped                          [len(causes)]atomic.Uint64
}

// Drop counts dropped lines.
func (c *Counters) Drop(why Cause, lines uint64) {
	for i, known := range causes {
		if known == why {
			c.dropped[i].Add(lines)
		}
	}
}

// Delivered counts lines that a destination has processed. It stored all but the dropped ones.
func (c *Counters) Delivered(lines uint64, dropped int) {
	lost := min(uint64(max(dropped, 0)), lines)
	c.Written.Add(lines - lost)
	c.Drop(CauseDiskFull, lost)
}

// Stats reads the counters. It reads In last, so InFlight is never negative.
func (c *Counters) Stats() Stats {
	s := Stats{
		Written: c.Written.Load(), Spooled: c.Spooled.Load(), Unterminated: c.unterminated.Load(),
		Oversize: c.Oversize.Load(), Repeated: c.Repeated.Load(),
	}
	done := s.Written + s.Spooled
	for i, why := range causes {
		if n := c.dropped[i].Load(); n > 0 {
			if s.Dropped == nil {
				s.Dropped = map[Cause]uint64{}
			}
			s.Dropped[why] = n
			done += n
		}
	}
	s.In, s.BytesIn = c.In.Load(), c.BytesIn.Load()
	if s.In > done {
		s.InFlight = s.In - done
	}
	return s
}
