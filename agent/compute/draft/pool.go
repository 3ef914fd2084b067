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

// Pool remembers resources as long as somebody uses them, so that equal ones are one, and those of
// one name that differ little are kept as what differs (see [envoy.Packed]). It is not safe for use
// by two goroutines at once. A nil Pool remembers nothing.
type Pool struct {
	known map[uint64]weak.Pointer[Resource]     // by the first eight bytes of the hash
	bases map[ResourceID]weak.Pointer[Resource] // what others of the name are packed against
	limit int                                   // entries at which dead ones are dropped

	scratch [NumTypes][]*Resource // room for lists that are not finished
}

// minSweep is how many entries a pool has before it looks for dead ones.
const minSweep = 4096

// NewPool returns an empty pool.
func NewPool() *Pool {
	return &Pool{known: map[uint64]weak.Pointer[Resource]{}, bases: map[ResourceID]weak.Pointer[Resource]{},
		limit: minSweep}
}

// Seal seals the wire form of a message of a type, which is not kept.
func (p *Pool) Seal(typeURL, name string, body []byte) *Resource {
	if p == nil {
		return NewResource(name, slices.Clone(body))
	}
	sum := sha256.Sum256(body)
	var version [2 * versionBytes]byte
	hex.Encode(version[:], sum[:versionBytes])
	key := binary.LittleEndian.Uint64(sum[:])
	if have := p.known[key].Value(); have != nil && have.Version == string(version[:]) && have.Name == name {
		return have
	}
	p.sweep()
	r := p.made(ResourceID{typeURL, name}, string(version[:]), body)
	p.known[key] = weak.Make(r)
	return r
}

// made makes a resource, packed where that saves enough.
func (p *Pool) made(id ResourceID, version string, body []byte) *Resource {
	if id.TypeURL == TypeSecret {
		return envoy.Raw(id.Name, version, slices.Clone(body))
	}
	if r := envoy.Packed(id.Name, version, body, p.bases[id].Value()); r != nil {
		return r
	}
	r := envoy.Raw(id.Name, version, slices.Clone(body))
	p.bases[id] = weak.Make(r)
	return r
}

// Rest lets go of the memory for lists.
func (p *Pool) Rest() { p.scratch = [NumTypes][]*Resource{} }

// Len is how many entries the pool has, those included that nobody uses any more.
func (p *Pool) Len() int { return len(p.known) + len(p.bases) }

// sweep drops entries whose resource nobody uses any more, once there are twice as many as after
// the last sweep.
func (p *Pool) sweep() {
	if p.Len() < p.limit {
		return
	}
	p.Sweep()
}

// Sweep drops the entries whose resource nobody uses any more.
func (p *Pool) Sweep() {
	p.Rest()
	p.known, p.bases = alive(p.known), alive(p.bases)
	p.limit = max(minSweep, 2*p.Len())
}

// alive returns the entries that are in use, in a map of their size: one that has been larger keeps
// its memory.
func alive[K comparable](m map[K]weak.Pointer[Resource]) map[K]weak.Pointer[Resource] {
	maps.DeleteFunc(m, func(_ K, w weak.Pointer[Resource]) bool { return w.Value() == nil })
	return maps.Clone(m)
}
