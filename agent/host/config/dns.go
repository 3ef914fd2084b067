package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// dnsPort is the port of name servers.
const dnsPort = 53

// Addrs returns the addresses of the resolver, or none if it is disabled.
func (d *DNS) Addrs() []netip.AddrPort {
	if d.Listen == "" {
		return nil
	}
	out, _ := resolverAddrs(d.Listen)
	return out
}

// Servers returns the configured upstreams.
func (d *DNS) Servers() []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(d.Upstreams))
	for _, s := range d.Upstreams {
		out = append(out, upstreamAddr(s))
	}
	return out
}

// upstreamAddr parses a validated upstream.
func upstreamAddr(s string) netip.AddrPort {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		addr, _ := netip.ParseAddr(s) // valid, because it was checked
		a = netip.AddrPortFrom(addr, dnsPort)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Own reports whether a name server is the resolver itself.
func (d *DNS) Own(server netip.AddrPort) bool {
	return slices.ContainsFunc(d.Addrs(), func(a netip.AddrPort) bool {
		return a.Port() == server.Port() &&
			(a.Addr() == server.Addr() || a.Addr().IsUnspecified() && server.Addr().IsLoopback())
	})
}

// checkDNS checks the resolver config.
func (c *Config) checkDNS(fault faultFunc) {
	d := &c.DNS
	if d.TTL < 1 {
		fault("dns.ttl", "%d is not allowed, because clients would repeat the query for each connection; "+
			"use 1 to 86400 seconds", d.TTL)
	}
	seen := map[netip.AddrPort]int{}
	for i, s := range d.Upstreams {
		a := upstreamAddr(s)
		first, twice := seen[a]
		seen[a] = i
		switch {
		case a.Addr().IsUnspecified() || a.Addr().IsMulticast():
			fault(fmt.Sprintf("dns.upstreams[%d]", i), "%.64q is not the address of a server; use one", s)
		case d.Own(a):
			fault(fmt.Sprintf("dns.upstreams[%d]", i),
				"%.64q is the resolver itself (dns.listen); use another server", s)
		case twice:
			fault(fmt.Sprintf("dns.upstreams[%d]", i), "%.64q is also item [%d]; list each server once", s, first)
		}
	}
}
