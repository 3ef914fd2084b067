package mesh

import (
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// pinAddresses gives services the addresses that their status says, and returns who has which. Of two that say the same, the one
// that has it keeps it, else the first gets it. It is free to lie outside of the ranges: on Kubernetes it is that of
// the Service.
func (a *vipAssigner) pinAddresses() map[netip.Addr]serviceKey {
	var pins map[netip.Addr]serviceKey
	for round := range 2 { // first those that have it
		for i := range a.claims {
			c := &a.claims[i]
			if len(a.v.services[c.from].claimed) == 0 {
				continue
			}
			want := a.wanted(c, round == 1)
			for f := range families {
				addr := want[f]
				switch {
				case !addr.IsValid():
				case round == 0:
					if a.had(c, f) == addr {
						c.addr[f] = addr
						pins = put(pins, addr, c.owner)
					}
				default:
					if by, ok := pins[addr]; ok && by != c.owner {
						a.v.warnf(a.key(c), "the virtual address %s in its status is already used by %s: it gets another one", addr, by.name)
						continue
					}
					c.addr[f] = addr
					pins = put(pins, addr, c.owner)
				}
			}
		}
	}
	return pins
}

func put(m map[netip.Addr]serviceKey, a netip.Addr, o serviceKey) map[netip.Addr]serviceKey {
	if m == nil {
		m = map[netip.Addr]serviceKey{}
	}
	m[a] = o
	return m
}

// wanted reads the addresses in the status of a claim: the first of each family that can be used.
func (a *vipAssigner) wanted(c *claim, warn bool) (out [families]netip.Addr) {
	say := func(format string, args ...any) {
		if warn {
			a.v.warnf(a.key(c), format, args...)
		}
	}
	for _, vip := range a.v.services[c.from].claimed {
		addr, err := netip.ParseAddr(vip.IP)
		if err != nil {
			say("status: the virtual address %q is not an IP address: it is not used", vip.IP)
			continue
		}
		addr = addr.Unmap() // ::ffff:241.0.0.1 is 241.0.0.1 (RFC 4291, section 2.5.5.2)
		f := familyOf(addr)
		switch of := a.rangeOf(addr); {
		case addr.Zone() != "" || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() || addr.IsLinkLocalUnicast():
			say("status: %s cannot be a virtual address; give one of a network: it is not used", vip.IP)
		case out[f].IsValid():
			if out[f] != addr {
				say("status: of several virtual addresses of one family, %s is used and %s is not", out[f], addr)
			}
		default:
			if of != c.owner.kind && of != noKind {
				say("status: the virtual address %s lies in the range of %s: it is used, and no service of that kind gets it", addr, kindName(of))
			} else if of == noKind && a.v.services[c.from].Labels[resource.LabelNamespace] == "" {
				say("status: the virtual address %s lies outside of the ranges of this agent: it is used, and hides what else has it", addr)
			}
			out[f] = addr
		}
	}
	return out
}

// noKind is the kind of an address outside of all ranges.
const noKind = "-"

// rangeOf is the kind of service that an address is for.
func (a *vipAssigner) rangeOf(addr netip.Addr) string {
	for kind, pools := range a.pools {
		if pools[familyOf(addr)].prefix.Contains(addr) {
			return kind // ranges do not overlap
		}
	}
	return noKind
}
