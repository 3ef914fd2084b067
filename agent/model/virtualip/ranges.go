package virtualip

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"time"
)

// Range holds the ranges for virtual addresses of one kind of service.
type Range struct{ V4, V6 netip.Prefix }

// Ranges holds the ranges of all kinds of services. A zero prefix selects the one of
// [DefaultRanges].
type Ranges struct {
	Tag, MeshService, MeshExternalService, MeshMultiZoneService Range
}

// DefaultRanges returns Kuma's ranges. They are parts of 240.0.0.0/4, which is reserved (RFC
// 1112, section 4) and never routed, and of fd00::/8, which is for local use (RFC 4193), so they
// hide no real destination.
func DefaultRanges() Ranges {
	at := func(n byte) Range {
		return Range{
			V4: netip.PrefixFrom(netip.AddrFrom4([4]byte{240 + n}), 8),
			V6: netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0xfd, n}), 64),
		}
	}
	return Ranges{Tag: at(0), MeshService: at(1), MeshExternalService: at(2), MeshMultiZoneService: at(3)}
}

// Prefixes returns all ranges, with defaults for zero prefixes.
func (r Ranges) Prefixes() (out []netip.Prefix) {
	usual := DefaultRanges()
	for _, x := range [...][2]Range{{r.Tag, usual.Tag}, {r.MeshService, usual.MeshService},
		{r.MeshExternalService, usual.MeshExternalService}, {r.MeshMultiZoneService, usual.MeshMultiZoneService}} {
		out = append(out, cmp.Or(x[0].V4, x[1].V4), cmp.Or(x[0].V6, x[1].V6))
	}
	return out
}

// kinds returns the ranges by kind of service.
func (r Ranges) kinds() map[string]Range {
	return map[string]Range{"": r.Tag, "MeshService": r.MeshService,
		"MeshExternalService": r.MeshExternalService, "MeshMultiZoneService": r.MeshMultiZoneService}
}

// Options controls the assignment of virtual addresses. The zero value is safe: default ranges,
// and no known addresses.
type Options struct {
	Ranges Ranges
	// IPv6 makes proxies also listen on the IPv6 addresses if their transparent proxy uses that
	// family. They do so in any case if some proxy of the mesh uses only IPv6. Services always have
	// these addresses.
	IPv6  bool
	Known *Set // the addresses after the previous view; may be nil
	// Domains are names outside the mesh that get virtual addresses from the ranges of
	// MeshExternalService; sorted, without duplicates. The caller claims them.
	Domains []string
	// Now is the current time. The addresses of a removed service become free Hold after the first
	// view without it. Entries of Known that are due at Now are dropped.
	Now  time.Time
	Hold time.Duration
	// Fixed assigns no new addresses: services that Known lacks get only an address from their
	// status.
	Fixed bool
}

// pools returns the ranges by kind and family.
func (o *Options) pools() map[string]*[families]pool {
	out, standard := map[string]*[families]pool{}, DefaultRanges().kinds()
	for kind, r := range o.Ranges.kinds() {
		out[kind] = &[families]pool{newPool(cmp.Or(r.V4, standard[kind].V4)),
			newPool(cmp.Or(r.V6, standard[kind].V6))}
	}
	return out
}

// maxProbes limits the search for a free address. It covers every address of a range of that size.
// In a larger range the search gets this far only with tens of thousands of services and hardly a
// free address.
const maxProbes = 1 << 16

// Parameters of the 64-bit FNV hash.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// pool is a range of virtual addresses as numbered slots.
type pool struct {
	prefix netip.Prefix
	mask   uint64 // slots - 1
}

// newPool returns the pool of a range. It uses at most the first 2^62 addresses.
func newPool(p netip.Prefix) pool {
	p = p.Masked()
	return pool{p, 1<<min(p.Addr().BitLen()-p.Bits(), 62) - 1}
}

// size returns the number of slots.
func (p *pool) size() int { return int(min(p.mask, math.MaxInt-1)) + 1 }

// at returns the address of a slot.
func (p *pool) at(slot uint64) netip.Addr {
	b := p.prefix.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])|slot)
	return netip.AddrFrom16(b).Unmap()
}

// holds reports whether an address belongs to one of the slots.
func (p *pool) holds(a netip.Addr) bool {
	b := a.As16()
	return p.at(binary.BigEndian.Uint64(b[8:])&p.mask) == a
}

// probe is the sequence of slots that an owner tries. The step is odd and the number of slots a
// power of two, so the sequence visits every slot once. Two owners with the same first slot usually
// have different steps.
type probe struct{ slot, step, mask uint64 }

func (p *pool) probe(mesh string, o Owner) probe {
	x := uint64(fnvOffset) // FNV-1a
	for _, s := range [...]string{mesh, o.Kind, o.Name} {
		for i := range len(s) {
			x = (x ^ uint64(s[i])) * fnvPrime
		}
		x *= fnvPrime // a zero byte ends each field
	}
	// The step uses other bits than the slot: those of the product's upper half.
	step, _ := bits.Mul64(x, 0x9e3779b97f4a7c15)
	return probe{slot: (x ^ x>>24 ^ x>>48) & p.mask, step: step | 1, mask: p.mask}
}

func (p *probe) next() { p.slot = (p.slot + p.step) & p.mask }
