package forward

import (
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/nearside-mesh/nearside/dns/table"
)

const (
	// MaxSilent is the maximum number of questions in flight for names of a silent domain. A
	// domain is silent if none of its last MaxSilent questions has an answer, and the first of
	// them is older than silentAfter, or half of all slots are in use.
	MaxSilent   = 64
	silentAfter = 500 * time.Millisecond

	// reserve is the part of each limit that is kept for clients with few waiting queries.
	reserve = 8
	// fewest is the part of the free reserve that one client may use.
	fewest = 4
)

// Full reports whether a limit is reached for a client that already uses ahead of the used places.
// An eighth beyond the limit is for clients that use few: at most a quarter of its free places. So
// a client that exhausts the limit leaves room for the others.
func Full(used, limit, ahead int) bool {
	return used >= limit && ahead >= (limit+limit/reserve-used)/fewest
}

// domain is a domain of one owner, such as example.co.uk, with questions in flight.
type domain struct {
	key        uint64
	inFlight   int
	unanswered int   // questions since the last answer
	since      int64 // time of the first of these
}

// domains has the domains with questions in flight. The forwarder's lock guards it.
type domains struct {
	seed  maphash.Seed
	byKey map[uint64]*domain
	free  []*domain
}

func newDomains() domains { return domains{seed: maphash.MakeSeed(), byKey: map[uint64]*domain{}} }

// key identifies the domain of a question at its origin.
func (d *domains) key(q *question) uint64 {
	return maphash.Bytes(d.seed, registrable(q.name)) ^ uint64(q.origin.number())<<32
}

// registrable returns the last labels of a name that one owner probably registered: two, three
// below suffixes such as co.uk, and those of a block of addresses below arpa. A list of public
// suffixes would be exact, but its lookup allocates.
func registrable(name []byte) []byte {
	var starts [table.MaxName]uint8 // of the labels
	n := 0
	for at := 0; at < len(name) && name[at] != 0; at += 1 + int(name[at]) {
		starts[n] = uint8(at) // #nosec G115 -- a name has at most 255 bytes
		n++
	}
	if n < 2 {
		return name
	}
	own, last := 2, name[starts[n-1]:]
	switch second := name[starts[n-2]:starts[n-1]]; {
	case string(last) == "\x04arpa\x00" && string(second) == "\x07in-addr":
		own = 4
	case string(last) == "\x04arpa\x00" && string(second) == "\x03ip6":
		own = 10
	case last[0] == 2 && second[0] <= 3: // a country, and a suffix such as co, com, or gov
		own = 3
	}
	return name[starts[max(n-own, 0)]:]
}

// silent reports whether a domain has as many questions in flight as a silent domain may have.
func (d *domains) silent(key uint64, crowded bool, now int64) bool {
	x := d.byKey[key]
	return x != nil && x.inFlight >= MaxSilent && x.unanswered >= MaxSilent &&
		(crowded || now-x.since >= int64(silentAfter))
}

// start counts a question of a domain.
func (d *domains) start(key uint64, now int64) *domain {
	x := d.byKey[key]
	if x == nil {
		if n := len(d.free); n > 0 {
			x, d.free = d.free[n-1], d.free[:n-1]
		} else {
			x = new(domain)
		}
		*x = domain{key: key}
		d.byKey[key] = x
	}
	if x.unanswered == 0 {
		x.since = now
	}
	x.unanswered++
	x.inFlight++
	return x
}

// end counts a question that has ended.
func (d *domains) end(x *domain) {
	if x.inFlight--; x.inFlight == 0 {
		delete(d.byKey, x.key)
		d.free = append(d.free, x)
	}
}

// Stale appends a stale answer to a query that cannot be forwarded now, like [Forwarder.Cached].
func (f *Forwarder) Stale(q *table.Query, msg, out []byte, to ReplyTo) ([]byte, bool) {
	if f.Opts.CacheBytes < 0 {
		return out, false
	}
	key := questionOf(q, to.Origin)
	by := client{
		id: uint16(msg[0])<<8 | uint16(msg[1]), flags: q.Flags, question: msg[table.HeaderLen:q.End],
		edns: q.EDNS.Present, do: q.EDNS.Do,
	}
	return f.cache.appendStale(out, &key, f.cache.hash(&key), &by, to.Max, to.At)
}

// AppendServers appends the addresses of the name servers of the config.
func (f *Forwarder) AppendServers(out []netip.AddrPort) []netip.AddrPort {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.servers {
		if s.origin == nil {
			out = append(out, s.addr)
		}
	}
	return out
}
