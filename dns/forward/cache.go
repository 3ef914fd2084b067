package forward

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/nearside-mesh/nearside/dns/table"
)

const (
	cacheShards = 16
	entryBytes  = int(unsafe.Sizeof(cacheEntry{})) + 4 // with its index slot

	staleFor      = int64(24 * time.Hour)
	failureFor    = int64(time.Second)      // RFC 9520 section 3.2
	staleRecheck  = int64(30 * time.Second) // RFC 8767 section 5
	hotHits       = 2                       // of an entry that is refreshed before it expires
	prefetchShare = 10                      // in the last tenth of its lifetime
)

// question is the key of cached answers. The name is in lower case.
type question struct {
	name   []byte
	qtype  uint16
	do, cd bool
	origin *Origin // nil: the servers of the config
}

// cache stores answers in wire form by question, and expired ones for another day (RFC 8767). It
// evicts by SIEVE (Zhang et al., NSDI 2024), so names that are queried once do not evict names
// that are queried often.
type cache struct {
	seed   maphash.Seed
	era    atomic.Uint32 // counts changes of the servers, which invalidate earlier failures
	shards [cacheShards]cacheShard
}

// cacheShard is a part of the cache with its own lock.
type cacheShard struct {
	mu      sync.Mutex
	limit   int // bytes
	used    int
	index   []int32 // 1 + the first entry for the low bits of the hash
	entries []cacheEntry
	free    []int32
	count   int
	newest  int32
	oldest  int32
	hand    int32 // where eviction continues; -1 is the oldest entry
	stats   cacheStats
}

type cacheStats struct{ hits, stale, failures, misses, prefetches, inserted, evicted, tooLarge uint64 }

// cacheEntry is a cached answer or failure.
type cacheEntry struct {
	hash              uint64
	data              []byte
	born, ends, retry int64 // until retry, a stale answer is served immediately
	next              int32 // in the hash chain
	newer, older      int32
	era               uint32 // in which the failure or retry was set
	origin            uint32
	size, ede         uint16
	hits              uint8
	do, cd            bool
	visited           bool
	refreshing        bool
	failure           bool
}

func newCache(limit int) *cache {
	c := &cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].limit = max(limit, 0) / cacheShards
		c.shards[i].clear()
	}
	return c
}

func (c *cache) hash(q *question) uint64 {
	x := uint64(q.qtype)
	if q.do {
		x |= 1 << 16
	}
	if q.cd {
		x |= 1 << 17
	}
	x += uint64(q.origin.number()) << 18
	h := maphash.Bytes(c.seed, q.name) + x*0x9e3779b97f4a7c15
	h ^= h >> 32
	return h * 0xd6e8feb86659fd93
}

func (c *cache) shard(hash uint64) *cacheShard { return &c.shards[hash>>60] }

// cacheResult is the result of a cache lookup.
type cacheResult int

const (
	cacheMissed   cacheResult = iota
	cacheFound                // a reply was appended
	cachePrefetch             // a reply was appended, and the answer needs a refresh
)

// appendReply appends the reply to a client if there is a fresh answer, or a stale one that need
// not be checked yet.
func (c *cache) appendReply(out []byte, q *question, hash uint64, by *client, limit int,
	now int64) ([]byte, cacheResult) {
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(hash, q)
	if i < 0 {
		s.stats.misses++
		return out, cacheMissed
	}
	e := &s.entries[i]
	old := e.era != c.era.Load()
	stale := now >= e.ends
	switch {
	case stale && (now >= e.retry || old || now >= e.ends+staleFor), e.failure && old:
		s.stats.misses++
		return out, cacheMissed
	case stale:
		s.stats.stale++
	case e.failure:
		s.stats.failures++
	default:
		s.stats.hits++
	}
	e.visited = true
	e.hits = min(e.hits, math.MaxUint8-1) + 1
	a := answer{data: e.data, size: int(e.size), ede: e.ede}
	out = a.appendReply(out, by, e.age(now), limit, stale)
	if !stale && !e.failure && !e.refreshing && e.hits > hotHits && (e.ends-now)*prefetchShare < e.ends-e.born {
		e.refreshing = true
		s.stats.prefetches++
		return out, cachePrefetch
	}
	return out, cacheFound
}

// appendStale appends a stale answer if there is one.
func (c *cache) appendStale(out []byte, q *question, hash uint64, by *client, limit int, now int64) ([]byte, bool) {
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(hash, q)
	if i < 0 || s.entries[i].failure || now >= s.entries[i].ends+staleFor {
		return out, false
	}
	e := &s.entries[i]
	e.visited = true
	s.stats.stale++
	stale := now >= e.ends
	a := answer{data: e.data, size: int(e.size), ede: e.ede}
	return a.appendReply(out, by, e.age(now), limit, stale), true
}

// failed records that no server answered a question. A previous answer is retained and served as
// stale until the next check. Without one, the failure is cached for a second.
func (c *cache) failed(q *question, hash uint64, a answer, now int64) {
	s := c.shard(hash)
	s.mu.Lock()
	if i := s.find(hash, q); i >= 0 && !s.entries[i].failure {
		e := &s.entries[i]
		e.refreshing = false
		if now < e.ends+staleFor {
			e.retry, e.era = now+staleRecheck, c.era.Load()
			s.mu.Unlock()
			return
		}
	}
	if i := s.put(q, hash, a, now, now+failureFor, true); i >= 0 {
		s.entries[i].era = c.era.Load()
	}
	s.mu.Unlock()
}

// age returns the age of an entry in seconds. It is not negative, although a batch of queries may
// have arrived before the entry was added.
func (e *cacheEntry) age(now int64) uint32 { return uint32(max(now-e.born, 0) / int64(time.Second)) }

// recheckLater makes the cache serve a stale answer immediately for a while, because the servers
// are slow. It returns false if there is no answer.
func (c *cache) recheckLater(q *question, hash uint64, now int64) bool {
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(hash, q)
	if i < 0 || s.entries[i].failure || now >= s.entries[i].ends+staleFor {
		return false
	}
	s.entries[i].retry, s.entries[i].era = now+staleRecheck, c.era.Load()
	return true
}

// put caches an answer for some seconds.
func (c *cache) put(q *question, hash uint64, a answer, now int64, ttl uint32) {
	s := c.shard(hash)
	s.mu.Lock()
	s.put(q, hash, a, now, now+int64(ttl)*int64(time.Second), false)
	s.mu.Unlock()
}

// forget removes an answer. The servers now send one that must not be cached.
func (c *cache) forget(q *question, hash uint64) {
	s := c.shard(hash)
	s.mu.Lock()
	if i := s.find(hash, q); i >= 0 {
		s.remove(i)
	}
	s.mu.Unlock()
}

func (s *cacheShard) find(hash uint64, q *question) int32 {
	for i := s.index[hash&uint64(len(s.index)-1)] - 1; i >= 0; i = s.entries[i].next - 1 {
		e := &s.entries[i]
		if e.hash != hash || e.do != q.do || e.cd != q.cd || e.origin != q.origin.number() {
			continue
		}
		end := table.HeaderLen + len(q.name)
		if len(e.data) >= end+4 && bytes.Equal(e.data[table.HeaderLen:end], q.name) &&
			binary.BigEndian.Uint16(e.data[end:]) == q.qtype {
			return i
		}
	}
	return -1
}

// put adds an entry and returns its number, or -1 if it is too large.
func (s *cacheShard) put(q *question, hash uint64, a answer, now, ends int64, failure bool) int32 {
	if i := s.find(hash, q); i >= 0 {
		s.remove(i)
	}
	if len(a.data)+entryBytes > s.limit/4 {
		s.stats.tooLarge++
		return -1
	}
	data := bytes.Clone(a.data)
	need := cap(data) + entryBytes
	for s.used+need > s.limit {
		s.evict()
	}
	if s.count >= len(s.index) {
		s.grow()
	}
	var i int32
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else {
		i = int32(len(s.entries))
		s.entries = append(s.entries, cacheEntry{})
	}
	e := &s.entries[i]
	*e = cacheEntry{hash: hash, data: data, size: uint16(a.size), ede: a.ede, born: now, ends: ends, do: q.do, cd: q.cd,
		origin: q.origin.number(), failure: failure, newer: -1, older: s.newest}
	b := &s.index[hash&uint64(len(s.index)-1)]
	e.next, *b = *b, i+1
	if s.newest >= 0 {
		s.entries[s.newest].newer = i
	} else {
		s.oldest = i
	}
	s.newest = i
	s.count++
	s.used += need
	s.stats.inserted++
	return i
}

// evict removes the first entry, from the hand towards newer ones, that was not used since the
// hand last passed it.
func (s *cacheShard) evict() {
	i := s.hand
	if i < 0 {
		i = s.oldest
	}
	for s.entries[i].visited {
		s.entries[i].visited = false
		if i = s.entries[i].newer; i < 0 {
			i = s.oldest
		}
	}
	s.hand = s.entries[i].newer
	s.stats.evicted++
	s.remove(i)
}

func (s *cacheShard) remove(i int32) {
	e := &s.entries[i]
	p := &s.index[e.hash&uint64(len(s.index)-1)]
	for *p != i+1 {
		p = &s.entries[*p-1].next
	}
	*p = e.next
	if s.hand == i {
		s.hand = e.newer
	}
	if e.newer >= 0 {
		s.entries[e.newer].older = e.older
	} else {
		s.newest = e.older
	}
	if e.older >= 0 {
		s.entries[e.older].newer = e.newer
	} else {
		s.oldest = e.newer
	}
	s.used -= cap(e.data) + entryBytes
	s.count--
	*e = cacheEntry{}
	s.free = append(s.free, i)
}

// grow doubles the index.
func (s *cacheShard) grow() {
	s.index = make([]int32, 2*len(s.index))
	for i := s.newest; i >= 0; i = s.entries[i].older {
		e := &s.entries[i]
		b := &s.index[e.hash&uint64(len(s.index)-1)]
		e.next, *b = *b, i+1
	}
}
