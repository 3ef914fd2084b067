package dns

import (
	"sync/atomic"

	"github.com/nearside-mesh/nearside/dns/table"
)

// Sources of answers.
const (
	fromTable = iota
	fromCache
	fromUpstream // sent to an upstream; the forwarder counts the result
	fromNone     // refused, failed, or dropped
	sources
)

// sourceNames has the label values of metrics.
var sourceNames = [sources]string{"local", "cache", "forwarded", "refused"}

// Query types that are counted separately.
const (
	countA = iota
	countAAAA
	countSRV
	countPTR
	countHTTPS
	countOther
	countTypes
)

var typeNames = [countTypes]string{"A", "AAAA", "SRV", "PTR", "HTTPS", "other"}

func countType(qtype uint16) int {
	switch qtype {
	case table.TypeA:
		return countA
	case table.TypeAAAA:
		return countAAAA
	case table.TypeSRV:
		return countSRV
	case table.TypePTR:
		return countPTR
	case table.TypeHTTPS:
		return countHTTPS
	}
	return countOther
}

// rcodes is the number of counted response codes: those of the header, and BADVERS.
const rcodes = table.RcodeBadVers + 1

// counters has the counters of one socket, or of all TCP connections. Usually only one goroutine
// adds to them, so contention is rare.
type counters struct {
	n    [sources][countTypes][rcodes]atomic.Uint64
	seen atomic.Uint32 // counts queries for sampling
	_    [64]byte      // keeps the counters of other sockets off this cache line
}

// add counts a query.
func (c *counters) add(source int, qtype uint16, rcode int) {
	c.n[source][countType(qtype)][rcode].Add(1)
}

func (s *Server) newCounters() *counters {
	c := new(counters)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters = append(s.counters, c)
	return c
}

// Count is the number of queries with one source, type, and response code.
type Count struct {
	Source string // local, cache, forwarded, or refused
	Type   string // A, AAAA, SRV, PTR, HTTPS, or other
	Rcode  int    // of the reply, 16 for BADVERS; 0 for forwarded and dropped queries
	N      uint64
}

// Counts returns the counts that are not 0, in a fixed order.
func (s *Server) Counts() (out []Count) {
	s.mu.Lock()
	all := s.counters[:len(s.counters):len(s.counters)]
	s.mu.Unlock()
	for source := range sources {
		for qtype := range countTypes {
			for rcode := range rcodes {
				var n uint64
				for _, c := range all {
					n += c.n[source][qtype][rcode].Load()
				}
				if n > 0 {
					out = append(out, Count{sourceNames[source], typeNames[qtype], rcode, n})
				}
			}
		}
	}
	return out
}
