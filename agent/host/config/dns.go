package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/dns/table"
)

// Default ports of name servers.
const (
	dnsPort = 53
	tlsPort = 853 // DNS over TLS
)

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
		out = append(out, upstreamAddr(s, dnsPort))
	}
	return out
}

// Servers returns the upstreams of the item.
func (f *DNSForward) Servers() []netip.AddrPort {
	port := uint16(dnsPort)
	if f.Protocol == "tls" {
		port = tlsPort
	}
	out := make([]netip.AddrPort, 0, len(f.Upstreams))
	for _, s := range f.Upstreams {
		out = append(out, upstreamAddr(s, port))
	}
	return out
}

// upstreamAddr parses a validated upstream, with a default port.
func upstreamAddr(s string, port uint16) netip.AddrPort {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		addr, _ := netip.ParseAddr(s) // valid, because it was checked
		a = netip.AddrPortFrom(addr, port)
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
	if d.NegativeTTL < 1 {
		fault("dns.negativeTTL", "%d is not allowed, because clients would repeat the query for each connection; "+
			"use 1 to 86400 seconds", d.NegativeTTL)
	}
	d.checkUpstreams(fault, "dns.upstreams", d.Upstreams, d.Servers())
	domains := map[string]string{}
	for i := range d.Forward {
		f, at := &d.Forward[i], fmt.Sprintf("dns.forward[%d]", i)
		d.checkUpstreams(fault, at+".upstreams", f.Upstreams, f.Servers())
		if f.ServerName != "" && f.Protocol != "tls" {
			fault(at+".serverName", "%.64q has no effect without TLS; set protocol to tls", f.ServerName)
		}
		for j, name := range f.Domains {
			key := fmt.Sprintf("%s.domains[%d]", at, j)
			other, twice := domains[name]
			domains[name] = key
			owned := slices.IndexFunc(d.Suffixes, func(s string) bool { return name == s || strings.HasSuffix(name, "."+s) })
			local, why := table.LocalSuffix(name)
			switch {
			case local != "" && !strings.HasSuffix(local, ".arpa"):
				fault(key, "%.64q never leaves the host, because %s; remove it", name, why)
			case twice:
				fault(key, "%.64q is also %s; list each domain once", name, other)
			case owned >= 0:
				fault(key, "%.64q belongs to the meshes, so its names are never forwarded; remove it, or the suffix %s "+
					"from dns.suffixes", name, d.Suffixes[owned])
			}
		}
	}
}

// checkUpstreams checks a list of upstreams.
func (d *DNS) checkUpstreams(fault faultFunc, at string, list []string, addrs []netip.AddrPort) {
	seen := map[netip.AddrPort]int{}
	for i, a := range addrs {
		s, key := list[i], fmt.Sprintf("%s[%d]", at, i)
		first, twice := seen[a]
		seen[a] = i
		switch {
		case a.Addr().IsUnspecified() || a.Addr().IsMulticast():
			fault(key, "%.64q is not the address of a server; use one", s)
		case d.Own(a):
			fault(key, "%.64q is the resolver itself (dns.listen); use another server", s)
		case twice:
			fault(key, "%.64q is also item [%d]; list each server once", s, first)
		}
	}
}
