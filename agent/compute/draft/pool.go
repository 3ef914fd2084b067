package draft

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"weak"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// Pool caches the sealed resources that are in use, so that equal resources are stored once, and
// resources of one name that differ little are stored as differences (see [envoy.Packed]). It is
// for use by one goroutine at a time.
type Pool struct {
	known map[uint64]weak.Pointer[Resource] // whole ones, by the first eight bytes of the hash
	// recent holds packed resources, at the remainder of the same bytes. Most of them belong to one
	// proxy, so a weak pointer to each would take more memory than it saves.
	recent []*Resource
	bases  map[ResourceID]weak.Pointer[envoy.Base] // against which resources of the name are packed
	moved  map[movedKey]weak.Pointer[movedList]
	limit  int // number of entries that triggers a sweep
	refs   envoy.RefFinder

	scratch [NumTypes][]*Resource // reused memory for unfinished lists
}

// maxRecent limits the packed resources that a pool remembers.
const maxRecent = 1 << 13

// minSweep is the smallest number of entries at which a pool is swept.
const minSweep = 4096

// NewPool returns an empty pool.
func NewPool() *Pool {
	return &Pool{known: map[uint64]weak.Pointer[Resource]{}, bases: map[ResourceID]weak.Pointer[envoy.Base]{},
		moved: map[movedKey]weak.Pointer[movedList]{}, limit: minSweep}
}

// Seal seals the wire form of a message of a rank, or returns the equal resource of a previous
// config. It copies the body. A nil pool caches nothing, and previous may be nil.
func (p *Pool) Seal(rank int, name string, body []byte, previous *Sealed) *Resource {
	if p == nil {
		return NewResource(rank, name, slices.Clone(body))
	}
	sum := sha256.Sum256(body)
	var version [2 * versionBytes]byte
	hex.Encode(version[:], sum[:versionBytes])
	key := binary.LittleEndian.Uint64(sum[:])
	equal := func(r *Resource) bool { return r != nil && r.Version == string(version[:]) && r.Name == name }
	if have := p.known[key].Value(); equal(have) {
		return have
	}
	if p.recent == nil {
		p.recent = make([]*Resource, maxRecent)
	}
	recent := &p.recent[key%maxRecent]
	if equal(*recent) {
		return *recent
	}
	if previous != nil {
		if have := Find(previous.Resources[rank], name); equal(have) {
			return have
		}
	}
	r := p.newResource(rank, name, string(version[:]), body)
	if r.IsPacked() {
		*recent = r
		return r
	}
	p.sweep()
	p.known[key] = weak.Make(r)
	return r
}

// newResource returns a new resource, packed if that saves enough.
func (p *Pool) newResource(rank int, name, version string, body []byte) *Resource {
	refs := p.refs.Find(envoy.Kind(rank), name, body)
	if rank == RankSecret {
		return envoy.Whole(name, version, slices.Clone(body), refs)
	}
	id := ResourceID{Types[rank], name}
	if r := envoy.Packed(name, version, body, refs, p.bases[id].Value()); r != nil {
		return r
	}
	r := envoy.Whole(name, version, slices.Clone(body), refs)
	p.bases[id] = weak.Make(r.Base())
	return r
}

// Adopt lets the pool find the moved lists of a batch of another pool.
func (p *Pool) Adopt(b *Batch) {
	for _, l := range b.moved {
		if l != nil {
			p.addMoved(l)
		}
	}
}

func (p *Pool) addMoved(l *movedList) {
	p.sweep()
	p.moved[l.key] = weak.Make(l)
}

// Rest releases the memory for unfinished lists.
func (p *Pool) Rest() { p.scratch = [NumTypes][]*Resource{} }

// Len returns the number of entries, including those of unused resources.
func (p *Pool) Len() int { return len(p.known) + len(p.bases) + len(p.moved) }

// sweep drops the entries of unused resources if there are twice as many entries as after the last
// sweep.
func (p *Pool) sweep() {
	if p.Len() >= p.limit {
		p.Sweep()
	}
}

// Sweep drops the entries of unused resources.
func (p *Pool) Sweep() {
	p.Rest()
	p.recent = nil
	p.known, p.bases, p.moved = alive(p.known), alive(p.bases), alive(p.moved)
	p.limit = max(minSweep, 2*p.Len())
}

// alive returns the entries that are in use. They are copied to a new map, because a map never
// shrinks.
func alive[K comparable, V any](m map[K]weak.Pointer[V]) map[K]weak.Pointer[V] {
	maps.DeleteFunc(m, func(_ K, w weak.Pointer[V]) bool { return w.Value() == nil })
	return maps.Clone(m)
}
