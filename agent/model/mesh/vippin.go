package mesh

import (
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// pin gives services the addresses that their status says. Of two that say the same, the one that
// has it retains it, else the first gets it. It is free to lie outside of the ranges: on Kubernetes
// it is that of the Service.
func (a *vipAssigner) pin() {
	for _, first := range [...]bool{true, false} { // first those that have it
		for i := range a.claims {
			c := &a.claims[i]
			for f, addr := range a.wanted(c, !first) {
				by, used := a.pins[addr]
				switch {
				case !addr.IsValid() || first && a.had(c, family(f)) != addr:
				case !first && used && by != c.owner:
					a.warnf(c, "the virtual address %s in its status is already used by %s: it gets another address", addr, by.name)
				default:
					c.addr[f], a.pins[addr] = addr, c.owner
				}
			}
		}
	}
}

// wanted reads the addresses in the status of a claim: the first of each family that can be used.
func (a *vipAssigner) wanted(c *claim, warn bool) (out [families]netip.Addr) {
	say := func(format string, args ...any) {
		if warn {
			a.warnf(c, format, args...)
		}
	}
	if len(c.ports) == 0 {
		return out
	}
	for _, vip := range c.ports[0].claimed {
		addr, err := netip.ParseAddr(vip.IP)
		if err != nil {
			say("status: the virtual address %q is not an IP address, so it is not used", vip.IP)
			continue
		}
		addr = addr.Unmap() // ::ffff:241.0.0.1 is 241.0.0.1 (RFC 4291, section 2.5.5.2)
		f := familyOf(addr)
		of, ranged := a.rangeOf(addr)
		switch {
		case addr.Zone() != "" || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() ||
			addr.IsLinkLocalUnicast():
			say("status: %s cannot be a virtual address, so it is not used: give an address of a network", vip.IP)
			continue
		case out[f].IsValid():
			if out[f] != addr {
				say("status: of several virtual addresses of one family, %s is used and %s is not", out[f], addr)
			}
			continue
		case ranged && of != c.owner.kind:
			say("status: the virtual address %s lies in the range of %s: it is used, and no service of that kind gets it",
				addr, kindName(of))
		case !ranged && c.ports[0].Labels[resource.LabelNamespace] == "":
			say("status: the virtual address %s lies outside of the ranges of this agent: it is used, "+
				"and whatever else has this address cannot be reached", addr)
		}
		out[f] = addr
	}
	return out
}

// rangeOf is the kind of service that an address is for; false where it lies outside of all ranges.
func (a *vipAssigner) rangeOf(addr netip.Addr) (kind string, ok bool) {
	for kind, pools := range a.pools {
		if pools[familyOf(addr)].prefix.Contains(addr) {
			return kind, true // ranges do not overlap
		}
	}
	return "", false
}

func kindName(kind string) string {
	if kind == KindTag {
		return "kuma.io/service"
	}
	return kind
}
