package forward

import (
	"net/netip"
	"slices"
	"time"
)

// Stats has the counters and the state of a forwarder.
type Stats struct {
	Cache   CacheStats
	Servers []ServerStats // in the order of the config, first those for names without a route
	// Origins are the servers that the clients of intercepted networks query, sorted. OriginTotal
	// is the total, also of earlier ones.
	Origins     []OriginStats
	OriginTotal ServerStats
	// Problem says why there is no server, or which servers are ignored; "" if all is well.
	Problem string

	InFlight, Waiting int // questions, and clients that wait for answers

	Asked      uint64 // questions that were not yet in flight
	Coalesced  uint64 // queries that waited for a question in flight
	Prefetches uint64
	Probes     uint64 // questions that were also sent to a slow or failed server
	Failed     uint64 // questions without an answer
	Distrusted uint64 // questions that were repeated over TCP because of forged replies
	Loops      uint64 // our own queries that came back
	NoSocket   uint64 // queries without a free socket or ID
	Refused    Refusals
}

// Refusals counts queries that were not forwarded, by reason.
type Refusals struct {
	InFlight uint64 // too many questions were in flight
	Waiters  uint64 // too many clients waited for the answer
	Network  uint64 // too many questions of one network were in flight, or it had ended
	Origin   uint64 // the server that the client queried was unknown
	Domain   uint64 // the name's domain is silent; see [MaxSilent]
	Stopped  uint64 // the forwarder was not running
}

// CacheStats counts cache lookups by result, and describes the contents.
type CacheStats struct {
	Hits, Stale, Failures, Misses uint64
	Inserted, Evicted, TooLarge   uint64
	Entries, Bytes                int
}

// ServerStats counts queries to a server and its replies.
type ServerStats struct {
	Addr       netip.AddrPort
	Domains    []string // of its route; nil: names without a route
	Protocol   Protocol
	ServerName string // for TLS, if configured
	Problem    string // why it cannot be queried over TLS; may be ""
	Down       bool
	RTT        time.Duration // smoothed; 0 if unknown
	Queries    uint64
	TCP        uint64 // queries over TCP
	Answers    uint64
	Failures   uint64 // replies such as SERVFAIL and REFUSED
	Timeouts   uint64
	Errors     uint64 // network errors
	Late       uint64 // replies to questions that had ended
	Mismatched uint64 // replies with another question
	Forged     uint64 // replies with an unknown ID
	OtherCase  uint64 // replies with the question in another case
	Malformed  uint64
	Truncated  uint64
	Elapsed    time.Duration // total for all answers
	// Latency counts answers by the bit length of their latency in microseconds.
	Latency [latencies]uint64
}

// forwardCounts has the counters of a forwarder that do not belong to a server.
type forwardCounts struct {
	Asked, Coalesced, Prefetches, Probes, Failed, Distrusted, Loops, NoSocket uint64
	Refused                                                                   Refusals
}

// Stats returns counters and state.
func (f *Forwarder) Stats() Stats {
	out := Stats{Cache: f.cache.stats()}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &f.counts
	out.Asked, out.Coalesced, out.Prefetches, out.Probes, out.Failed = c.Asked, c.Coalesced, c.Prefetches,
		c.Probes, c.Failed
	out.Distrusted, out.Loops, out.NoSocket, out.Refused = c.Distrusted, c.Loops, c.NoSocket, c.Refused
	out.InFlight, out.Waiting, out.Problem = f.slots.used, f.slots.waiting, f.problem
	for _, set := range slices.Concat([]*serverSet{f.set}, f.routes.sets) {
		for _, sv := range set.servers {
			st := sv.state()
			st.Domains, st.Protocol, st.ServerName = set.domains, set.protocol, set.serverName
			out.Servers = append(out.Servers, st)
		}
	}
	f.originStats(&out)
	return out
}

// state returns the counters and the state of a server.
func (s *server) state() ServerStats {
	st := s.stats
	st.Addr, st.Down, st.RTT, st.Problem = s.addr, s.down(), time.Duration(s.srtt), s.problem
	return st
}

// Add adds the counters of another server.
func (s *ServerStats) Add(o *ServerStats) {
	for _, c := range [...]struct{ to, n *uint64 }{
		{&s.Queries, &o.Queries}, {&s.TCP, &o.TCP}, {&s.Answers, &o.Answers}, {&s.Failures, &o.Failures},
		{&s.Timeouts, &o.Timeouts}, {&s.Errors, &o.Errors}, {&s.Late, &o.Late}, {&s.Mismatched, &o.Mismatched},
		{&s.Forged, &o.Forged}, {&s.OtherCase, &o.OtherCase}, {&s.Malformed, &o.Malformed},
		{&s.Truncated, &o.Truncated},
	} {
		*c.to += *c.n
	}
	s.Elapsed += o.Elapsed
	for i, n := range o.Latency {
		s.Latency[i] += n
	}
}

// leastShed is the minimum size of a cache that is worth dropping, because every name must then
// be queried again.
const leastShed = 4 << 20

// Shed drops the cached answers if they use much memory.
func (f *Forwarder) Shed() {
	if f.cache.stats().Bytes >= leastShed {
		f.cache.drop()
	}
}

// drop removes all answers.
func (c *cache) drop() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.stats.evicted += uint64(s.count) // #nosec G115 -- never negative
		s.clear()
		s.mu.Unlock()
	}
}

// dropOrigins removes the answers of origins.
func (c *cache) dropOrigins(ids []uint32) {
	if len(ids) == 0 {
		return
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for j := range s.entries {
			if e := &s.entries[j]; e.origin != 0 && slices.Contains(ids, e.origin) {
				s.remove(int32(j)) // #nosec G115 -- the number of entries is bounded
			}
		}
		s.mu.Unlock()
	}
}

// clear removes all entries. The caller holds the lock.
func (s *cacheShard) clear() {
	s.used, s.count, s.entries, s.free, s.index = 0, 0, nil, nil, make([]int32, 16)
	s.newest, s.oldest, s.hand = -1, -1, -1
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

// looped counts one of our own queries that came back: the server, or a redirection on the way,
// sends it here. The caller holds the lock.
func (f *Forwarder) looped(sv *server) {
	f.counts.Loops++
	if f.counts.Loops&(f.counts.Loops-1) == 0 { // log only powers of two
		f.log.Error("A query to a name server was redirected back to this process; exempt its queries from the "+
			"redirection of port 53 (by mark or user), or use another server", "server", sv.addr, "times", f.counts.Loops)
	}
}
