package forward

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

const (
	optionPadding = 12 // RFC 7830
	optionEDE     = 15 // RFC 8914
)

// response is a message of a name server, as miekg/dns reads it. Hop-by-hop records (OPT, TSIG) are
// not among its records. A response is reused; it shares no memory with the message.
type response struct {
	mdns.Msg
	whole bool      // all records were read
	opt   *mdns.OPT // nil: the message has no OPT record
	// fixed has the parts of the message that hold no names, in order: start and end of each.
	fixed [][2]int
}

// read reads a message. It returns false unless the message is a response with at most one
// question. It skips the records of a truncated message.
func (r *response) read(m []byte) bool {
	*r = response{fixed: append(r.fixed[:0], [2]int{0, table.HeaderLen})}
	if len(m) < table.HeaderLen || r.Unpack(m[:table.HeaderLen]) != nil || !r.Response || r.Opcode != mdns.OpcodeQuery {
		return false
	}
	end := table.HeaderLen
	switch binary.BigEndian.Uint16(m[4:]) {
	case 0:
	case 1:
		name, at, err := mdns.UnpackDomainName(m, end)
		if err != nil || len(m) < at+4 || binary.BigEndian.Uint16(m[at+2:]) != mdns.ClassINET {
			return false
		}
		end = at + 4
		r.fixed = append(r.fixed, [2]int{at, end})
		r.Question = []mdns.Question{{Name: name, Qtype: binary.BigEndian.Uint16(m[at:]), Qclass: mdns.ClassINET}}
	default:
		return false
	}
	r.whole = !r.Truncated && r.records(m, end)
	return true
}

// records reads the sections that begin at a position. It returns false if the message has fewer
// records than its header says, or a record that clients could not read.
func (r *response) records(m []byte, at int) bool {
	for i, section := range []*[]mdns.RR{&r.Answer, &r.Ns, &r.Extra} {
		for range binary.BigEndian.Uint16(m[6+2*i:]) {
			rr, next, err := mdns.UnpackRR(m, at)
			if err != nil || next == at || r.wildPointer(m, at) {
				return false
			}
			h := rr.Header()
			data := next - int(h.Rdlength)
			r.fixed = append(r.fixed, [2]int{data - 10, data})
			at = next
			switch rr := rr.(type) {
			case *mdns.OPT:
				if i < 2 || r.opt != nil || h.Name != "." {
					return false
				}
				r.opt = rr
				r.Rcode |= rr.ExtendedRcode()
				continue
			case *mdns.TSIG:
				continue
			case *mdns.APL, *mdns.NULL, *mdns.RFC3597: // may be empty
			default:
				if h.Rdlength == 0 {
					return false
				}
			}
			*section = append(*section, rr)
		}
	}
	return true
}

// wildPointer reports whether the name at a position ends in a compression pointer that does not
// lead to an earlier name (RFC 1035 section 4.1.4). miekg/dns follows pointers to any position.
func (r *response) wildPointer(m []byte, at int) bool {
	start := at
	for m[at] > 0 && m[at] < 0xc0 {
		at += 1 + int(m[at])
	}
	if m[at] == 0 {
		return false
	}
	target := int(binary.BigEndian.Uint16(m[at:]) & 0x3fff)
	i, _ := slices.BinarySearchFunc(r.fixed, target, func(f [2]int, target int) int { return f[1] - 1 - target })
	return target >= start || i < len(r.fixed) && target >= r.fixed[i][0]
}

// ede returns the code of the extended error (RFC 8914), or -1.
func (r *response) ede() int {
	if r.opt != nil {
		for _, o := range r.opt.Option {
			if e, ok := o.(*mdns.EDNS0_EDE); ok {
				return int(e.InfoCode)
			}
		}
	}
	return -1
}

// negative reports whether the response says that the name or the type does not exist.
func (r *response) negative() bool {
	qtype := r.Question[0].Qtype
	typed := slices.ContainsFunc(r.Answer, func(rr mdns.RR) bool { return rr.Header().Rrtype == qtype })
	return r.Rcode == mdns.RcodeNameError || !typed && qtype != mdns.TypeANY
}

// soa returns the SOA record of the authority section, or nil.
func (r *response) soa() *mdns.SOA {
	for _, rr := range r.Ns {
		if soa, ok := rr.(*mdns.SOA); ok {
			return soa
		}
	}
	return nil
}

// lame reports whether the response is only a referral: the server does not resolve names for its
// clients.
func (r *response) lame() bool {
	return r.Rcode == mdns.RcodeSuccess && !r.RecursionAvailable && len(r.Answer) == 0 && r.soa() == nil &&
		slices.ContainsFunc(r.Ns, func(rr mdns.RR) bool { return rr.Header().Rrtype == mdns.TypeNS })
}

// refusesEDNS reports whether the server seems not to know EDNS (RFC 6891 section 7).
func (r *response) refusesEDNS() bool {
	return (r.Rcode == mdns.RcodeFormatError || r.Rcode == mdns.RcodeNotImplemented) && r.opt == nil ||
		r.Rcode == mdns.RcodeBadVers
}

// answer packs a whole response to the question for a name, in the memory of b if it fits. It also
// returns how many seconds the answer may be cached; 0 means that it must not be.
func (r *response) answer(b, name []byte) (answer, uint32, error) {
	if !r.trim() {
		return answer{}, 0, errors.New("the aliases lead in a circle")
	}
	ttl := uint32(MaxTTL)
	for _, section := range [][]mdns.RR{r.Answer, r.Ns, r.Extra} {
		for _, rr := range section {
			h := rr.Header()
			if h.Ttl > math.MaxInt32 {
				h.Ttl = 0 // RFC 2181 section 8
			}
			ttl = min(ttl, h.Ttl)
		}
	}
	if r.negative() {
		if soa := r.soa(); soa != nil {
			ttl = min(ttl, soa.Minttl, maxNegTTL) // RFC 2308 section 5
			soa.Hdr.Ttl = ttl
		} else {
			ttl = min(ttl, bareNegTTL)
		}
	}
	records := len(r.Answer) + len(r.Ns) + len(r.Extra)
	r.Compress = true
	wire, err := r.PackBuffer(b[:cap(b)])
	if err != nil {
		return answer{}, 0, err
	}
	if len(wire) > math.MaxUint16 {
		return answer{}, 0, errors.New("the answer does not fit into a message")
	}
	copy(wire[table.HeaderLen:], name)
	a := answer{size: len(wire), ede: noEDE}
	at := table.HeaderLen + len(name) + 4
	for range records {
		at = table.SkipName(wire, at) + 4
		wire = binary.BigEndian.AppendUint16(wire, uint16(at))
		at += 6 + int(binary.BigEndian.Uint16(wire[at+4:]))
	}
	a.data = wire
	if ede := r.ede(); ede >= 0 && ede < edeDropped {
		a.ede = uint16(ede)
	}
	return a, ttl, nil
}
