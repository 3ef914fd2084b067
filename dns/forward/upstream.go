package forward

import (
	"crypto/tls"
	"math/bits"
	"net/netip"
	"slices"
	"time"
)

const (
	MaxServers = 8 // in a resolv.conf; libc uses 3

	idsPerChannel = 1024
	maxInFlight   = idsPerChannel * 3 / 4 // on a channel, so that a free ID is found quickly

	Failing    = 3 // consecutive questions without an answer after which a server counts as failed
	maxSRTT    = int64(2 * time.Second)
	nearBest   = int64(10 * time.Millisecond)
	probeDown  = 16 // one in this many questions is also sent to a failed server
	probeSlow  = 64 // and to a slow server
	probeEDNS  = 16 // one in this many has EDNS although the server seems not to support it
	Confirmed  = 3  // observations after which a server counts as ignoring case or EDNS
	maxWrong   = 3  // replies with another question, after which the question is sent over TCP
	MaxForged  = 16 // replies with an unknown ID, after which the questions of a socket are sent over TCP
	latencies  = 24 // powers of two of microseconds
	rttHistory = 8  // weight of the newest measurement is 1/8
)

// server is a name server. The forwarder's lock guards its fields.
type server struct {
	addr        netip.AddrPort
	origin      *Origin // nil: a server of the config
	dropped     bool    // gets no further questions
	sockets     [SocketsPerServer]*udpSocket
	streams     []*stream
	singleUntil int64 // until then, one question per stream

	tls     *tls.Config // nil: no TLS
	problem string      // why it cannot be queried over TLS

	srtt    int64 // nanoseconds; 0 if unknown
	fails   int   // consecutive questions without an answer
	probing bool

	ednsKnown  bool  // the server has sent an OPT record
	plainUntil int64 // until then, it seems not to support EDNS; 0 once ednsKnown
	plainSeen  int
	caseKnown  bool  // the server has echoed mixed case
	lowerUntil int64 // until then, it seems not to; 0 once caseKnown
	lowerSeen  int

	stats ServerStats
}

// serverSet has the servers and options of one version of the config. It is immutable.
type serverSet struct {
	domains    []string // of the route; nil: names without a route
	protocol   Protocol
	serverName string

	servers  []*server
	rotate   bool
	tcp      bool // use-vc, or the protocol of the route
	trusted  bool // trust-ad
	patience int64
	attempts int // per server; 0 means as many as time permits
}

// answered records an answer and its latency.
func (s *server) answered(elapsed int64) {
	elapsed = max(elapsed, 1)
	if s.srtt == 0 || s.fails > 0 {
		s.srtt = elapsed
	} else {
		s.srtt += (elapsed - s.srtt) / rttHistory
	}
	s.srtt = max(s.srtt, 1)
	s.fails, s.problem = 0, ""
	s.stats.Answers++
	s.stats.Elapsed += time.Duration(elapsed)
	s.stats.Latency[min(bits.Len64(uint64(elapsed/int64(time.Microsecond))), latencies-1)]++
}

// timedOut records a question without an answer.
func (s *server) timedOut(waited int64) {
	s.stats.Timeouts++
	s.srtt = min(max(2*s.srtt, waited), maxSRTT)
}

func (s *server) down() bool { return s.fails >= Failing }

// rank compares a server with the best one: 0 is as good, 1 is slower, 2 has failed.
func (s *server) rank(best int64) int {
	switch {
	case s.down():
		return 2
	case s.srtt > 2*best+nearBest:
		return 1
	}
	return 0
}

// order appends the servers in the order of use. Servers that are about as good as the best one
// come first, in the order of the config or in rotation, then slower ones, then failed ones.
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

// probe returns a server that gets a copy of the question, to find out whether it works again. It
// is usually nil.
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

// allDown reports whether all servers have failed.
func (set *serverSet) allDown() bool {
	return !slices.ContainsFunc(set.servers, func(s *server) bool { return !s.down() })
}

// channel is a socket to a server with its questions in flight.
type channel struct {
	server   *server
	udp      *udpSocket // either udp or tcp is set
	tcp      *stream
	ids      [idsPerChannel]ident
	earlier  *[1 << 16 / 64]uint64 // bit set of used IDs that are no longer in ids; nil if there are none
	inFlight int
	forged   int
	retired  bool // takes no new questions
}

// ident is a used ID. The ID determines its position in the table.
type ident struct {
	slot  int32
	id    uint16
	state identState
}

type identState uint8

const (
	idUnused identState = iota
	idInFlight
	idOver // a reply is late
)

// take assigns a random ID to a question.
func (c *channel) take(random func() uint64, slot int32) (uint16, bool) {
	if c.inFlight >= maxInFlight {
		return 0, false
	}
	for range 16 {
		for x := random(); x != 0; x >>= 16 {
			e := &c.ids[x%idsPerChannel]
			if e.state != idInFlight {
				if e.state == idOver {
					c.remember(e.id)
				}
				*e = ident{slot: slot, id: uint16(x), state: idInFlight}
				c.inFlight++
				return uint16(x), true
			}
		}
	}
	return 0, false
}

// remember records an ID whose entry is reused.
func (c *channel) remember(id uint16) {
	if c.earlier == nil {
		c.earlier = new([1 << 16 / 64]uint64)
	}
	c.earlier[id/64] |= 1 << (id % 64)
}

// of returns the use of an ID, or the zero ident.
func (c *channel) of(id uint16) ident {
	switch e := c.ids[id%idsPerChannel]; {
	case e.id == id && e.state != idUnused:
		return e
	case c.earlier != nil && c.earlier[id/64]&(1<<(id%64)) != 0:
		return ident{state: idOver}
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
