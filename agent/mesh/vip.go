package mesh

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Each kind of service has a range of virtual addresses of its own (240.0.0.0/4 is reserved by RFC 1112 and never
// routed, so no real destination is hidden).
var vipRanges = map[string]byte{
	KindTag: 240, KindMeshService: 241, KindMeshExternalService: 242, KindMeshMultiZoneService: 243,
}

const vipSlots = 1 << 24 // addresses in one /8

// assignVIPs gives every service its virtual address: the one in its status where it has one, else a hash of its
// name, so that all nodes agree without talking. A collision moves to the next free address, in the order of names.
func (v *View) assignVIPs() {
	taken := make(map[netip.Addr]vipOwner, len(v.services))
	warned := map[vipOwner]bool{}
	for _, s := range v.services {
		if s.wantVIP.IsValid() {
			me := ownerOf(s)
			if o, ok := taken[s.wantVIP]; ok && o != me {
				if !warned[me] {
					v.warnf(s.Resource, "the virtual address %s in its status is already used by %s: it gets another one",
						s.wantVIP, o.name)
					warned[me] = true
				}
				continue
			}
			taken[s.wantVIP] = me
			s.VIP = s.wantVIP
		}
	}
	for _, s := range v.services {
		if s.VIP.IsValid() {
			continue
		}
		o := ownerOf(s)
		slot := slotOf(v.Name, o)
		for range vipSlots {
			a := vipAt(vipRanges[s.ID.Kind], slot)
			if have, ok := taken[a]; !ok || have == o {
				taken[a] = o
				s.VIP = a
				break
			}
			slot = (slot + 1) % vipSlots
		}
		if !s.VIP.IsValid() {
			v.warnf(s.Resource, "the range %d.0.0.0/8 of virtual addresses is full", vipRanges[s.ID.Kind])
		}
	}
}

// vipOwner is what has a virtual address: a tag service, or a real service with all its ports.
type vipOwner struct{ kind, name string }

func ownerOf(s *Service) vipOwner {
	if s.Resource != (resource.Key{}) {
		return vipOwner{s.ID.Kind, s.Resource.Name}
	}
	return vipOwner{s.ID.Kind, s.Tag}
}

func slotOf(mesh string, o vipOwner) uint32 {
	h := fnv.New64a()
	for _, s := range []string{mesh, o.kind, o.name} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	x := h.Sum64()
	return uint32(x^x>>24^x>>48) % vipSlots
}

func vipAt(first byte, slot uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], slot)
	b[0] = first
	return netip.AddrFrom4(b)
}
