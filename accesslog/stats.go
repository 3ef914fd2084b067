package accesslog

import "sync/atomic"

// Cause says why lines were dropped. It is the label of a metric, so the set is small and fixed.
type Cause string

// Causes of drops.
const (
	CauseSpoolFull Cause = "spool-full" // the spool has reached its limit of bytes
	CauseSpoolAge  Cause = "spool-age"  // lines have waited longer in the spool than they may
	CauseSpoolBad  Cause = "spool-bad"  // a segment of the spool was damaged
	CauseDiskFull  Cause = "disk-full"  // the file or the spool could not be written
	CauseRejected  Cause = "rejected"   // the collector has refused them for good
	CauseStopped   Cause = "stopped"    // the time to stop was over
	CauseRemoved   Cause = "removed"    // the destination was taken away
)

// causes in the order of counters.dropped.
var causes = [...]Cause{CauseSpoolFull, CauseSpoolAge, CauseSpoolBad, CauseDiskFull, CauseRejected, CauseStopped,
	CauseRemoved}

// Stats are counts of one stream since it was made. They are read without waiting, so they may
// belong to moments that are a little apart; once nothing is under way In = Written + Spooled +
// InFlight + the sum of Dropped.
type Stats struct {
	In       uint64           `json:"in"`                // lines that were read
	BytesIn  uint64           `json:"bytesIn"`           //
	Written  uint64           `json:"written"`           // lines in the file, or acknowledged by the collector
	Spooled  uint64           `json:"spooled"`           // lines on disk that wait for their collector
	InFlight uint64           `json:"inFlight"`          // lines in memory
	Dropped  map[Cause]uint64 `json:"dropped,omitempty"` // lines
	// Unterminated lines ended with their connection or writer, and got their LF here.
	Unterminated uint64 `json:"unterminated,omitempty"`
	// Oversize lines were longer than the longest that is kept in memory, and are stored in several.
	Oversize uint64 `json:"oversize,omitempty"`
	// Repeated lines were sent to a collector more than once, since it had not acknowledged them.
	Repeated uint64 `json:"repeated,omitempty"`
	// SpoolBytes are on disk, SpoolOldest is the age in seconds of the oldest of them.
	SpoolBytes  uint64  `json:"spoolBytes,omitempty"`
	SpoolOldest float64 `json:"spoolOldestSeconds,omitempty"`
	// Health is "" while all goes well, and else says what is wrong and what to do.
	Health string `json:"health,omitempty"`
}

// Counters are the counts behind Stats. What is derived (InFlight) has no counter.
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

// Stats reads the counters. What has come in is read last, so that InFlight is never less than
// nothing.
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
