package forward

import (
	"math/bits"
	"net/netip"
	"slices"
	"time"
)

const (
	MaxServers = 8 // of a resolv.conf; libc takes 3

	idsPerChannel = 1024
	maxInFlight   = idsPerChannel * 3 / 4 // of a channel, so that a free place is found soon

	Failing    = 3 // questions in a row without an answer, until a server is taken to be down
	maxSRTT    = int64(2 * time.Second)
	nearBest   = int64(10 * time.Millisecond)
	probeDown  = 16 // one in so many questions is also sent to a server that is down
	probeSlow  = 64 // or that is slow
	Confirmed  = 3  // times that a server has shown that it keeps no case, or knows no EDNS
	maxWrong   = 3  // replies with another question than the one asked, until it is asked over TCP
	MaxForged  = 16 // replies with an ID that was not asked with, until the questions of a socket are asked over TCP
	latencies  = 24 // powers of two of microseconds
	rttHistory = 8  // of which one is the newest
)

// server is a name server. Its fields are guarded by the forwarder's lock.
type server struct {
	addr       netip.AddrPort
	sockets    [SocketsPerServer]*udpSocket
	streams    []*stream
	aloneUntil int64 // one question on each stream

	srtt    int64 // 0 while unknown
	fails   int   // questions in a row without an answer
	probing bool

	ednsKnown  bool // it has answered a query with EDNS
	plainUntil int64
	plainSeen  int
	lowerUntil int64
	lowerSeen  int

	stats ServerStats
}

// serverSet is what one reading of a config has named. It does not change.
type serverSet struct {
	servers  []*server
	rotate   bool
	tcp      bool // use-vc
	trusted  bool // trust-ad
	patience int64
	attempts int // for each server; 0 is as many as there is time for
}

// answered notes an answer that took so long.
func (s *server) answered(took int64) {
	took = max(took, 1)
	if s.srtt == 0 || s.fails > 0 {
		s.srtt = took
	} else {
		s.srtt += (took - s.srtt) / rttHistory
	}
	s.srtt = max(s.srtt, 1)
	s.fails = 0
	s.stats.Answers++
	s.stats.Took += time.Duration(took)
	s.stats.Latency[min(bits.Len64(uint64(took/int64(time.Microsecond))), latencies-1)]++
}

// silent notes that a question has had no answer for so long.
func (s *server) silent(waited int64) {
	s.stats.Timeouts++
	s.srtt = min(max(2*s.srtt, waited), maxSRTT)
}

func (s *server) down() bool { return s.fails >= Failing }

// rank says how a server stands to the best one: 0 as good, 1 slower, 2 down.
func (s *server) rank(best int64) int {
	switch {
	case s.down():
		return 2
	case s.srtt > 2*best+nearBest:
		return 1
	}
	return 0
}

// order puts the servers in the order in which a question is sent to them: those that are as good
// as the best one as the config has them, or in turn; then those that are slower, then those that
// are down.
func (set *serverSet) order(out []uint8, turn int) []uint8 {
	best := int64(-1)
	for _, s := range set.servers {
		if !s.down() && (best < 0 || s.srtt < best) {
			best = s.srtt
		}
	}
	n := len(set.servers)
	first := 0
	if set.rotate && n > 0 {
		first = turn % n
	}
	for rank := range 3 {
		from := len(out)
		for i := range n {
			if j := (first + i) % n; set.servers[j].rank(best) == rank {
				out = append(out, uint8(j))
			}
		}
		if rank > 0 {
			slices.SortStableFunc(out[from:], func(a, b uint8) int {
				return int(set.servers[a].srtt - set.servers[b].srtt)
			})
		}
	}
	return out
}

// probe returns a server beside the first of an order that is asked too, to see whether it is back;
// nil is the rule.
func (set *serverSet) probe(order []uint8, random uint64) *server {
	best := set.servers[order[0]].srtt
	for _, i := range order[1:] {
		s := set.servers[i]
		if rank := s.rank(best); !s.probing && (rank == 2 && random%probeDown == 0 || rank == 1 && random%probeSlow == 0) {
			return s
		}
		random >>= 8
	}
	return nil
}

// allDown reports whether no server has answered lately.
func (set *serverSet) allDown() bool {
	return !slices.ContainsFunc(set.servers, func(s *server) bool { return !s.down() })
}

// channel is a socket to a server, with the questions that are in flight on it.
type channel struct {
	server   *server
	udp      *udpSocket // one of these two
	tcp      *stream
	ids      [idsPerChannel]ident
	inFlight int
	forged   int
	retired  bool // no new questions
}

// ident is the use of an ID. Each has one place in the table, so that no search is needed.
type ident struct {
	slot  int32
	id    uint16
	state identState
}

type identState uint8

const (
	idUnused identState = iota
	idInFlight
	idOver // an answer that comes now is late
)

// take gives a question a random ID.
func (c *channel) take(random func() uint64, slot int32) (uint16, bool) {
	if c.inFlight >= maxInFlight {
		return 0, false
	}
	for range 16 {
		for x := random(); x != 0; x >>= 16 {
			e := &c.ids[x%idsPerChannel]
			if e.state != idInFlight {
				*e = ident{slot: slot, id: uint16(x), state: idInFlight}
				c.inFlight++
				return uint16(x), true
			}
		}
	}
	return 0, false
}

// of returns the use of an ID; unused where there was none.
func (c *channel) of(id uint16) ident {
	if e := c.ids[id%idsPerChannel]; e.id == id {
		return e
	}
	return ident{}
}

// end ends the use of an ID.
func (c *channel) end(id uint16) {
	if e := &c.ids[id%idsPerChannel]; e.id == id && e.state == idInFlight {
		e.state = idOver
		c.inFlight--
	}
}
