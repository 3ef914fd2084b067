package forward

import (
	"slices"
	"strings"

	mdns "github.com/miekg/dns"
)

// maxChain is the maximum number of aliases that lead from a question to its records.
const maxChain = 16

// trim removes records that do not belong to the question. In the answer section it keeps the
// records of the name and of the names that its aliases lead to, in the authority section those of
// zones above these names, and in the additional section the addresses of names in kept records.
// Clients and their caches could use other records for other names (RFC 5452 section 6).
// trim returns false if the aliases lead in a circle.
func (r *response) trim() bool {
	var chain [maxChain + 1]string
	names := append(chain[:0], r.Question[0].Name)
	for len(names) <= maxChain {
		next := r.alias(names[len(names)-1])
		if next == "" {
			break
		}
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, next) }) {
			return false
		}
		names = append(names, next)
	}
	r.Answer = slices.DeleteFunc(r.Answer, func(rr mdns.RR) bool {
		h := rr.Header()
		if h.Rrtype == mdns.TypeDNAME {
			return !above(names, h.Name)
		}
		return !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, h.Name) })
	})
	r.Ns = slices.DeleteFunc(r.Ns, func(rr mdns.RR) bool { return !above(names, rr.Header().Name) })
	r.Extra = slices.DeleteFunc(r.Extra, func(rr mdns.RR) bool {
		h := rr.Header()
		if h.Rrtype != mdns.TypeA && h.Rrtype != mdns.TypeAAAA {
			return true
		}
		names := func(x mdns.RR) bool { return strings.EqualFold(target(x), h.Name) }
		return !slices.ContainsFunc(r.Answer, names) && !slices.ContainsFunc(r.Ns, names)
	})
	return true
}

// alias returns the target of a name's CNAME record, or "".
func (r *response) alias(name string) string {
	for _, rr := range r.Answer {
		if c, ok := rr.(*mdns.CNAME); ok && strings.EqualFold(c.Hdr.Name, name) {
			return c.Target
		}
	}
	return ""
}

// above reports whether a zone contains one of the names.
func above(names []string, zone string) bool {
	for _, n := range names {
		if zone == "." || strings.EqualFold(n, zone) {
			return true
		}
		if at := len(n) - len(zone); at > 0 && n[at-1] == '.' && strings.EqualFold(n[at:], zone) {
			return true
		}
	}
	return false
}

// target returns the name whose addresses help the clients of a record, or "".
func target(rr mdns.RR) string {
	switch rr := rr.(type) {
	case *mdns.SRV:
		return rr.Target
	case *mdns.MX:
		return rr.Mx
	case *mdns.NS:
		return rr.Ns
	}
	return ""
}
