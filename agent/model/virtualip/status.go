package virtualip

import "net/netip"

// pin assigns the addresses in the status of services. If two services name the same address, the
// one that has it retains it; else the first one gets it. The address may lie outside the ranges:
// on Kubernetes it is the address of the Service.
func (a *Assigner) pin() {
	for _, first := range [...]bool{true, false} { // first the services that already have it
		for i := range a.claims {
			c := a.claims[i]
			for f, addr := range a.wanted(c, !first) {
				by, used := a.pins[addr]
				switch {
				case !addr.IsValid() || first && a.had(c, Family(f)) != addr:
				case !first && used && by != c.Owner:
					a.warnf(c, "the virtual address %s in its status is already used by %s: this service gets another address",
						addr, by.Name)
				default:
					c.Addr[f], a.pins[addr] = addr, c.Owner
				}
			}
		}
	}
}

// wanted returns the addresses in the status of a claim: the first usable one of each family.
func (a *Assigner) wanted(c *Claim, warn bool) (out Addresses) {
	say := func(format string, args ...any) {
		if warn {
			a.warnf(c, format, args...)
		}
	}
	for _, text := range c.Status {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			say("status: the virtual address %q is not an IP address, so it is not used", text)
			continue
		}
		addr = addr.Unmap() // ::ffff:241.0.0.1 is 241.0.0.1 (RFC 4291, section 2.5.5.2)
		f := familyOf(addr)
		of, ranged := a.rangeOf(addr)
		switch {
		case addr.Zone() != "" || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() ||
			addr.IsLinkLocalUnicast():
			say("status: %s cannot be a virtual address, so it is not used: set a unicast address", text)
			continue
		case out[f].IsValid():
			if out[f] != addr {
				say("status: several virtual addresses of one family: %s is used, %s is not", out[f], addr)
			}
			continue
		case ranged && of != c.Owner.Kind:
			say("status: the virtual address %s is in the range of %s: it is used, and no service of that kind gets it",
				addr, kindName(of))
		case !ranged && !c.Cluster:
			say("status: the virtual address %s is outside the ranges of this agent: it is used, "+
				"and any other host with this address is unreachable", addr)
		}
		out[f] = addr
	}
	return out
}

// rangeOf returns the kind of service whose range contains an address; false if no range does.
func (a *Assigner) rangeOf(addr netip.Addr) (kind string, ok bool) {
	for kind, pools := range a.pools {
		if pools[familyOf(addr)].prefix.Contains(addr) {
			return kind, true // ranges do not overlap
		}
	}
	return "", false
}

func kindName(kind string) string {
	if kind == "" {
		return "kuma.io/service"
	}
	return kind
}
