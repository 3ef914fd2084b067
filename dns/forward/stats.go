package forward

import (
	"net/netip"
	"time"
)

// Stats says what a forwarder has done since it was made, and how it stands.
type Stats struct {
	Cache   CacheStats
	Servers []ServerStats // as the config has them
	// Problem says why there is no server to ask, or which are not asked; "" for none.
	Problem string

	InFlight, Waiting int // questions, and clients that wait for their answers

	Asked      uint64 // questions that clients had, and no one else had asked
	Coalesced  uint64 // queries that waited for the question of another one
	Prefetches uint64
	Probes     uint64 // questions that were also sent to a server that is down or slow
	Failed     uint64 // questions without an answer
	Distrusted uint64 // questions that were asked over TCP because of forged replies
	Loops      uint64 // queries of ours that came back to us
	NoRoom     uint64 // queries for which there was no socket or ID
	Refused    Refusals
}

// Refusals counts queries that were not sent on, by the reason.
type Refusals struct {
	InFlight uint64 // too many questions were in flight
	Waiters  uint64 // too many clients waited for the answer
	Stopped  uint64 // the forwarder did not run
}

// CacheStats counts look-ups of the cache by what it had, and its contents.
type CacheStats struct {
	Hits, Stale, Failures, Misses uint64
	Inserted, Evicted, TooLarge   uint64
	Entries, Bytes                int
}

// ServerStats counts what was sent to a server, and how it has answered.
type ServerStats struct {
	Addr       netip.AddrPort
	Down       bool
	RTT        time.Duration // smoothed; 0 while unknown
	Queries    uint64
	TCP        uint64 // of these
	Answers    uint64
	Failures   uint64 // replies with SERVFAIL, REFUSED or the like
	Timeouts   uint64
	Errors     uint64 // of the network
	Late       uint64 // replies to questions that had ended
	Mismatched uint64 // replies with another question
	Forged     uint64 // replies with an ID that was not in use
	OtherCase  uint64 // replies with the question in another case
	Malformed  uint64
	Truncated  uint64
	Took       time.Duration // by all answers together
	// Latency counts answers by the number of bits of the microseconds that they took.
	Latency [latencies]uint64
}

// forwardCounts are the counts of a forwarder itself.
type forwardCounts struct {
	Asked, Coalesced, Prefetches, Probes, Failed, Distrusted, Loops, NoRoom uint64
	Refused                                                                 Refusals
}

// Stats returns how a forwarder stands.
func (f *Forwarder) Stats() Stats {
	out := Stats{Cache: f.cache.stats()}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &f.counts
	out.Asked, out.Coalesced, out.Prefetches, out.Probes, out.Failed = c.Asked, c.Coalesced, c.Prefetches,
		c.Probes, c.Failed
	out.Distrusted, out.Loops, out.NoRoom, out.Refused = c.Distrusted, c.Loops, c.NoRoom, c.Refused
	out.InFlight, out.Waiting, out.Problem = f.slots.used, f.slots.waiting, f.problem
	for _, sv := range f.set.servers {
		st := sv.stats
		st.Addr, st.Down, st.RTT = sv.addr, sv.down(), time.Duration(sv.srtt)
		out.Servers = append(out.Servers, st)
	}
	return out
}

// leastShed is how many bytes of the cache are worth being given up: without it each name is asked
// for anew.
const leastShed = 4 << 20

// Shed gives up the answers that are remembered, where they take much memory.
func (f *Forwarder) Shed() {
	if f.cache.stats().Bytes >= leastShed {
		f.cache.drop()
	}
}

// drop forgets all answers.
func (c *cache) drop() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.stats.evicted += uint64(s.count) // #nosec G115 -- never negative
		*s = cacheShard{limit: s.limit, index: make([]int32, 16), newest: -1, oldest: -1, hand: -1, stats: s.stats}
		s.mu.Unlock()
	}
}

func (c *cache) stats() (out CacheStats) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		out.Hits += s.stats.hits
		out.Stale += s.stats.stale
		out.Failures += s.stats.failures
		out.Misses += s.stats.misses
		out.Inserted += s.stats.inserted
		out.Evicted += s.stats.evicted
		out.TooLarge += s.stats.tooLarge
		out.Entries += s.count
		out.Bytes += s.used
		s.mu.Unlock()
	}
	return out
}

// looped notes that a query of ours has come back to us: the server, or something on the way to it,
// sends it here. The caller holds the lock.
func (f *Forwarder) looped(sv *server) {
	f.counts.Loops++
	if f.counts.Loops&(f.counts.Loops-1) == 0 { // not for each
		f.log.Error("A query to a name server has come back to this process; exempt its queries from the redirection of "+
			"port 53 (a mark, or its user), or ask another server.", "server", sv.addr, "times", f.counts.Loops)
	}
}
