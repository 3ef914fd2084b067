package mesh

import (
	"cmp"
	"net/netip"
	"time"
)

// VIPRange is where the virtual addresses of one kind of service come from.
type VIPRange struct{ V4, V6 netip.Prefix }

// VIPRanges are the ranges of all kinds of services. A zero prefix stands for the one of [DefaultVIPRanges].
type VIPRanges struct {
	Tag, MeshService, MeshExternalService, MeshMultiZoneService VIPRange
}

// DefaultVIPRanges are those of the reference: parts of 240.0.0.0/4, which is reserved (RFC 1112, section 4) and never
// routed, and of fd00::/8, which is for local use (RFC 4193), so that no real destination is hidden.
func DefaultVIPRanges() VIPRanges {
	at := func(n byte) VIPRange {
		return VIPRange{
			V4: netip.PrefixFrom(netip.AddrFrom4([4]byte{240 + n}), 8),
			V6: netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0xfd, n}), 64),
		}
	}
	return VIPRanges{Tag: at(0), MeshService: at(1), MeshExternalService: at(2), MeshMultiZoneService: at(3)}
}

// kinds returns the ranges by kind of service.
func (r VIPRanges) kinds() map[string]VIPRange {
	return map[string]VIPRange{KindTag: r.Tag, KindMeshService: r.MeshService,
		KindMeshExternalService: r.MeshExternalService, KindMeshMultiZoneService: r.MeshMultiZoneService}
}

// VIPOptions say how services get their virtual addresses. The zero value is safe: the default ranges, and no memory.
type VIPOptions struct {
	Ranges VIPRanges
	// IPv6 makes proxies listen at the IPv6 addresses as well, where their transparent proxy takes that family. Services
	// have those addresses in any case.
	IPv6  bool
	Known *VIPs // what the previous view left; nil: nothing
	// Now and Hold say when the addresses of a service that is gone become free: Hold after the first view without it.
	// Entries of Known that are due at Now are forgotten.
	Now  time.Time
	Hold time.Duration
}

// pools are the ranges by kind and family.
func (o *VIPOptions) pools() map[string]*[families]vipPool {
	out, standard := map[string]*[families]vipPool{}, DefaultVIPRanges().kinds()
	for kind, r := range o.Ranges.kinds() {
		out[kind] = &[families]vipPool{newVIPPool(cmp.Or(r.V4, standard[kind].V4)), newVIPPool(cmp.Or(r.V6, standard[kind].V6))}
	}
	return out
}

// VIPs returns the memory of the virtual addresses of this view. It is the pointer that was given where nothing changed.
func (v *View) VIPs() *VIPs { return v.vips }
