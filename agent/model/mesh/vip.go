package mesh

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// VIPRange holds the ranges for virtual addresses of one kind of service.
type VIPRange struct{ V4, V6 netip.Prefix }

// VIPRanges holds the ranges of all kinds of services. A zero prefix selects the one of
// [DefaultVIPRanges].
type VIPRanges struct {
	Tag, MeshService, MeshExternalService, MeshMultiZoneService VIPRange
}

// DefaultVIPRanges returns Kuma's ranges. They are parts of 240.0.0.0/4, which is reserved (RFC
// 1112, section 4) and never routed, and of fd00::/8, which is for local use (RFC 4193), so they
// hide no real destination.
func DefaultVIPRanges() VIPRanges {
	at := func(n byte) VIPRange {
		return VIPRange{
			V4: netip.PrefixFrom(netip.AddrFrom4([4]byte{240 + n}), 8),
			V6: netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0xfd, n}), 64),
		}
	}
	return VIPRanges{Tag: at(0), MeshService: at(1), MeshExternalService: at(2), MeshMultiZoneService: at(3)}
}

// Prefixes returns all ranges, with defaults for zero prefixes.
func (r VIPRanges) Prefixes() (out []netip.Prefix) {
	usual := DefaultVIPRanges()
	for _, x := range [...][2]VIPRange{{r.Tag, usual.Tag}, {r.MeshService, usual.MeshService},
		{r.MeshExternalService, usual.MeshExternalService}, {r.MeshMultiZoneService, usual.MeshMultiZoneService}} {
		out = append(out, cmp.Or(x[0].V4, x[1].V4), cmp.Or(x[0].V6, x[1].V6))
	}
	return out
}

// kinds returns the ranges by kind of service.
func (r VIPRanges) kinds() map[string]VIPRange {
	return map[string]VIPRange{KindTag: r.Tag, KindMeshService: r.MeshService,
		KindMeshExternalService: r.MeshExternalService, KindMeshMultiZoneService: r.MeshMultiZoneService}
}

// VIPOptions controls the assignment of virtual addresses. The zero value is safe: default ranges,
// and no known addresses.
type VIPOptions struct {
	Ranges VIPRanges
	// IPv6 makes proxies also listen on the IPv6 addresses if their transparent proxy uses that
	// family. They do so in any case if some proxy of the mesh uses only IPv6. Services always have
	// these addresses.
	IPv6  bool
	Known *VIPs // the addresses after the previous view; may be nil
	// Domains are names outside the mesh that get virtual addresses from the ranges of
	// MeshExternalService; sorted, without duplicates.
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
func (o *VIPOptions) pools() map[string]*[families]vipPool {
	out, standard := map[string]*[families]vipPool{}, DefaultVIPRanges().kinds()
	for kind, r := range o.Ranges.kinds() {
		out[kind] = &[families]vipPool{newVIPPool(cmp.Or(r.V4, standard[kind].V4)),
			newVIPPool(cmp.Or(r.V6, standard[kind].V6))}
	}
	return out
}

// VIPs returns the addresses to pass to the next view. It is the pointer from VIPOptions.Known if
// nothing changed.
func (v *View) VIPs() *VIPs { return v.vips }

// Domain returns the virtual addresses of one of [VIPOptions.Domains]. For any other name both are
// invalid.
func (v *View) Domain(name string) (ipv4, ipv6 netip.Addr) {
	if i, ok := slices.BinarySearch(v.Domains, name); ok {
		return v.domains[i][v4], v.domains[i][v6]
	}
	return netip.Addr{}, netip.Addr{}
}

// domainKey returns the owner of a domain's addresses. No resource has such a name.
func domainKey(name string) serviceKey {
	return serviceKey{kind: KindMeshExternalService, name: "domain " + name}
}

// someIPv6 reports whether the transparent proxy of some dataplane uses only IPv6, so that it needs
// IPv6 addresses of services.
func (v *View) someIPv6() bool {
	for _, dp := range resource.Specs[*resource.Dataplane](v.dataplanes) {
		if tp := dp.Networking.TransparentProxying; tp != nil && tp.IPFamilyMode == resource.IPFamilyIPv6 {
			return true
		}
	}
	return false
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

// vipPool is a range of virtual addresses as numbered slots.
type vipPool struct {
	prefix netip.Prefix
	mask   uint64 // slots - 1
}

// newVIPPool returns the pool of a range. It uses at most the first 2^62 addresses.
func newVIPPool(p netip.Prefix) vipPool {
	p = p.Masked()
	return vipPool{p, 1<<min(p.Addr().BitLen()-p.Bits(), 62) - 1}
}

// size returns the number of slots.
func (p *vipPool) size() int { return int(min(p.mask, math.MaxInt-1)) + 1 }

// at returns the address of a slot.
func (p *vipPool) at(slot uint64) netip.Addr {
	b := p.prefix.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])|slot)
	return netip.AddrFrom16(b).Unmap()
}

// holds reports whether an address belongs to one of the slots.
func (p *vipPool) holds(a netip.Addr) bool {
	b := a.As16()
	return p.at(binary.BigEndian.Uint64(b[8:])&p.mask) == a
}

// probe is the sequence of slots that an owner tries. The step is odd and the number of slots a
// power of two, so the sequence visits every slot once. Two owners with the same first slot usually
// have different steps.
type probe struct{ slot, step, mask uint64 }

func (p *vipPool) probe(mesh string, o serviceKey) probe {
	x := uint64(fnvOffset) // FNV-1a
	for _, s := range [...]string{mesh, o.kind, o.name} {
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
