package forward

import (
	"bytes"
	"net"
	"net/netip"
	"slices"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

// Drop is the reason why an address was dropped from an answer.
type Drop uint8

// Reasons in the order in which they are checked.
const (
	DropNone      Drop = iota
	DropVirtual        // a virtual address: only the table has names for it
	DropLoopback       // of the client's own host
	DropLinkLocal      // of a link, such as a metadata service
	DropPrivate        // of a private network
	drops
)

// String returns the reason as in metrics, or "".
func (d Drop) String() string {
	return [drops]string{"", "virtual", "loopback", "link-local", "private"}[d]
}

// Internal codes of extended errors: edeDropped plus a Drop. Clients get the code edeBlocked. They
// are of the range for private use (RFC 8914 section 5.2).
const (
	edeBlocked = 15
	edeDropped = 0xff00
)

// dropped returns why addresses are missing in an answer.
func (a answer) dropped() Drop {
	if a.ede > edeDropped && a.ede < edeDropped+uint16(drops) {
		return Drop(a.ede - edeDropped)
	}
	return DropNone
}

// Protection selects the addresses that are dropped from answers, so that the owner of a name
// outside cannot direct clients to hosts that only they can reach (DNS rebinding).
type Protection struct {
	Virtual []netip.Prefix // always dropped
	// Private drops loopback, link-local, and private addresses too, except for the names in Except
	// and those below them.
	Private bool
	Except  []string

	except [][]byte // in wire form
}

// Ranges of addresses that other hosts cannot reach. Hosts connect to 0.0.0.0 as to themselves.
var (
	loopbackRanges = prefixes("0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128")
	linkRanges     = prefixes("169.254.0.0/16", "fe80::/10")
	privateRanges  = prefixes("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")
	// embeddedRanges hold IPv4 addresses in their last 32 bits.
	embeddedRanges = prefixes("::/96", "64:ff9b::/96")
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// of returns why an address is dropped, or DropNone. Private is as in Protection.
func (p *Protection) of(a netip.Addr, private bool) Drop {
	a = a.Unmap()
	if d := p.ofOne(a, private); d != DropNone || !within(embeddedRanges, a) {
		return d
	}
	b := a.As16()
	return p.ofOne(netip.AddrFrom4([4]byte(b[12:])), private)
}

func (p *Protection) ofOne(a netip.Addr, private bool) Drop {
	switch {
	case within(p.Virtual, a):
		return DropVirtual
	case !private:
	case within(loopbackRanges, a):
		return DropLoopback
	case within(linkRanges, a):
		return DropLinkLocal
	case within(privateRanges, a):
		return DropPrivate
	}
	return DropNone
}

// excepts reports whether a name in wire form is one of the exceptions, or below one.
func (p *Protection) excepts(name []byte) bool {
	for at := 0; at < len(name) && name[at] != 0; at += 1 + int(name[at]) {
		if slices.ContainsFunc(p.except, func(x []byte) bool { return bytes.Equal(x, name[at:]) }) {
			return true
		}
	}
	return false
}

// Protect sets the addresses to drop from now on. It also drops cached answers if the protection
// changes. The caller must not change p afterwards.
func (f *Forwarder) Protect(p *Protection) {
	for _, name := range p.Except {
		if wire, err := table.AppendName(nil, name); err == nil {
			p.except = append(p.except, wire)
		}
	}
	old := f.protection.Swap(p)
	if old == nil || old.Private != p.Private || !slices.Equal(old.Except, p.Except) ||
		!slices.Equal(old.Virtual, p.Virtual) {
		f.cache.drop()
	}
}

// protect drops addresses from a response to a question, and counts them. It returns the reason of
// the first one. Servers that clients chose may give private addresses, as those of containers do.
func (p *Protection) protect(f *Forwarder, r *response, q *question) (first Drop) {
	if p == nil {
		return DropNone
	}
	private := p.Private && q.origin == nil && !p.excepts(q.name)
	drop := func(a netip.Addr) bool {
		d := p.of(a, private)
		if d == DropNone {
			return false
		}
		f.dropped[d].Add(1)
		if first == DropNone {
			first = d
		}
		return true
	}
	dropIP := func(ip net.IP) bool {
		a, ok := netip.AddrFromSlice(ip)
		return ok && drop(a)
	}
	for _, section := range []*[]mdns.RR{&r.Answer, &r.Extra} {
		*section = slices.DeleteFunc(*section, func(rr mdns.RR) bool {
			switch rr := rr.(type) {
			case *mdns.A:
				return dropIP(rr.A)
			case *mdns.AAAA:
				return dropIP(rr.AAAA)
			case *mdns.HTTPS:
				rr.Value = withoutHints(rr.Value, dropIP)
			case *mdns.SVCB:
				rr.Value = withoutHints(rr.Value, dropIP)
			}
			return false
		})
	}
	return first
}

// withoutHints removes addresses from the parameters of a service binding (RFC 9460).
func withoutHints(list []mdns.SVCBKeyValue, drop func(net.IP) bool) []mdns.SVCBKeyValue {
	return slices.DeleteFunc(list, func(v mdns.SVCBKeyValue) bool {
		switch v := v.(type) {
		case *mdns.SVCBIPv4Hint:
			v.Hint = slices.DeleteFunc(v.Hint, drop)
			return len(v.Hint) == 0
		case *mdns.SVCBIPv6Hint:
			v.Hint = slices.DeleteFunc(v.Hint, drop)
			return len(v.Hint) == 0
		}
		return false
	})
}

// Dropped returns the number of dropped addresses by reason.
func (f *Forwarder) Dropped() map[string]uint64 {
	out := make(map[string]uint64, drops-1)
	for d := DropVirtual; d < drops; d++ {
		out[d.String()] = f.dropped[d].Load()
	}
	return out
}
