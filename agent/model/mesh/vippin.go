package mesh

import (
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// pin assigns the addresses in the status of services. If two services name the same address, the
// one that has it retains it; else the first one gets it. The address may lie outside the ranges:
// on Kubernetes it is the address of the Service.
func (a *vipAssigner) pin() {
	for _, first := range [...]bool{true, false} { // first the services that already have it
		for i := range a.claims {
			c := &a.claims[i]
			for f, addr := range a.wanted(c, !first) {
				by, used := a.pins[addr]
				switch {
				case !addr.IsValid() || first && a.had(c, family(f)) != addr:
				case !first && used && by != c.owner:
					a.warnf(c, "the virtual address %s in its status is already used by %s: this service gets another address",
						addr, by.name)
				default:
					c.addr[f], a.pins[addr] = addr, c.owner
				}
			}
		}
	}
}

// wanted returns the addresses in the status of a claim: the first usable one of each family.
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
			say("status: %s cannot be a virtual address, so it is not used: set a unicast address", vip.IP)
			continue
		case out[f].IsValid():
			if out[f] != addr {
				say("status: several virtual addresses of one family: %s is used, %s is not", out[f], addr)
			}
			continue
		case ranged && of != c.owner.kind:
			say("status: the virtual address %s is in the range of %s: it is used, and no service of that kind gets it",
				addr, kindName(of))
		case !ranged && c.ports[0].Labels[resource.LabelNamespace] == "":
			say("status: the virtual address %s is outside the ranges of this agent: it is used, "+
				"and any other host with this address is unreachable", addr)
		}
		out[f] = addr
	}
	return out
}

// rangeOf returns the kind of service whose range contains an address; false if no range does.
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
