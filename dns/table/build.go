package table

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Host is a name and its records.
type Host struct {
	// Name is a hostname, or a wildcard such as *.example.com.
	Name  string
	Addrs []netip.Addr // in the order of the first answer; at most 64
	// Ports are in the SRV records of the name. A named port also has SRV records at
	// _NAME._tcp.HOST.
	Ports []Port
	// PTR is the target of a reverse name; see [ReverseName]. A host with a PTR has no other
	// records.
	PTR string
	// Group identifies the owner of the name for views. All clients see group 0.
	Group uint32
	// Uncached makes the TTL of its addresses 0, because clients behind one cache get different ones.
	Uncached bool
}

// Port is a port of a host.
type Port struct {
	Name   string // may be ""
	Number uint16
}

// Options are the options of a table.
type Options struct {
	// Suffixes are owned by the table: names below them exist only if the table has them. Names
	// below Forwarded are forwarded if the table does not have them. The longest suffix of a name
	// decides; for equal ones, Suffixes take precedence.
	Suffixes, Forwarded []string
	// Default lists those of Suffixes that other servers than the default ones may have.
	Default []string
	// Local answers names that never leave the host: see [LocalSuffix]. localhost is a loopback
	// address.
	Local bool
	// TTL and NegativeTTL are the TTLs in seconds of answers with and without records. 0 means 30
	// and 5. The second one is shorter because clients must find names that are added later.
	TTL, NegativeTTL uint32
}

const (
	defaultTTL         = 30
	defaultNegativeTTL = 5
	MaxAddrs           = 64
	MaxPorts           = 64
	// maxDelta is the number of names in the delta of a table beyond which the whole index is
	// rebuilt.
	maxDelta = 256
)

// New returns a table, and an error for each host or suffix that it leaves out. If several hosts
// have one name, the first one gets it.
func New(o Options, hosts []Host) (*Table, []error) {
	b := &builder{ttl: cmp.Or(o.TTL, defaultTTL), x: newIndex(maphash.MakeSeed(), len(hosts)+len(hosts)/4)}
	negative := cmp.Or(o.NegativeTTL, defaultNegativeTTL)
	if o.Local {
		b.addLocal()
	}
	for _, s := range o.Forwarded {
		b.own(s, flagForward)
	}
	for _, s := range o.Suffixes {
		b.own(s, flagOwned)
	}
	for _, s := range o.Default {
		b.own(s, flagOwned|flagDefault)
	}
	for i := range hosts {
		b.add(&hosts[i])
	}
	b.x.names, b.x.sets, b.x.bytes = slices.Clone(b.x.names), slices.Clone(b.x.sets), slices.Clone(b.x.bytes)
	return &Table{ttl: b.ttl, negative: negative, base: b.x}, b.errs
}

// With returns a table in which some hosts are replaced or added, and others removed by name. Its
// cost depends on the number of changes, except that about one in 256 changes rebuilds the table.
func (t *Table) With(put []Host, remove []string) (*Table, []error) {
	b := &builder{ttl: t.ttl, base: t.base}
	seed := maphash.MakeSeed()
	if t.base != nil {
		seed = t.base.seed
	}
	b.x = newIndex(seed, t.delta.len()+2*(len(put)+len(remove)))
	if t.delta != nil {
		for i := range t.delta.names {
			b.x.add(t.delta, &t.delta.names[i])
		}
	}
	for _, name := range remove {
		b.remove(name)
	}
	for i := range put {
		b.remove(put[i].Name)
		b.add(&put[i])
	}
	next := &Table{ttl: t.ttl, negative: t.negative, base: t.base, delta: b.x}
	if next.delta.len() <= maxDelta {
		return next, b.errs
	}
	x := newIndex(seed, next.delta.len()+next.base.len())
	next.each(func(from *index, e *entry) { x.add(from, e) })
	return &Table{ttl: t.ttl, negative: t.negative, base: x}, b.errs
}

// builder fills an index. With a base, the index has only the differences from it.
type builder struct {
	ttl  uint32
	base *index
	x    *index
	errs []error
	// Scratch space for a name and the records of one host.
	buf  [2 * MaxName]byte
	sets []rrset
	body []byte
}

func (b *builder) errorf(format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf(format, args...))
}

// find returns the number of a name's entry in the index, or -1. It first copies the entry from
// the base if necessary.
func (b *builder) find(name []byte) int {
	h := maphash.Bytes(b.x.seed, name)
	i := b.x.find(name, h)
	if i < 0 {
		if j := b.base.find(name, h); j >= 0 {
			return b.x.add(b.base, &b.base.names[j])
		}
	}
	return i
}

// make returns the number of a name's entry. It adds missing entries of the name and its parents.
func (b *builder) make(name []byte) int {
	i := b.find(name)
	if i >= 0 && !b.x.names[i].gone() {
		return i
	}
	if i < 0 {
		i = b.x.insert(name)
	}
	if parent := name[1+name[0]:]; parent[0] != 0 {
		b.x.names[b.make(parent)].children++
	}
	return i
}

// release updates the parents of an entry that has become empty.
func (b *builder) release(name []byte, i int) {
	for b.x.names[i].gone() {
		name = name[1+name[0]:]
		if name[0] == 0 {
			return
		}
		if i = b.find(name); i < 0 {
			return
		}
		b.x.names[i].children--
	}
}

// own sets the flags of a suffix. Later flags replace earlier ones.
func (b *builder) own(suffix string, flags uint8) {
	name, err := AppendName(b.buf[:0], suffix)
	if err == nil && isWildcard(name) {
		err = fmt.Errorf("%q is a wildcard; use the suffix without \"*.\"", Clip(suffix))
	}
	if err != nil {
		b.errorf("suffix %w", err)
		return
	}
	e := &b.x.names[b.make(name)]
	e.flags = e.flags&flagHost | flags
	b.x.mark(e)
}

func (b *builder) remove(host string) {
	name, err := AppendName(b.buf[:0], host)
	if err != nil {
		return // an invalid name is in no table
	}
	i := b.find(name)
	if i < 0 || b.x.names[i].flags&flagHost == 0 {
		return
	}
	e := &b.x.names[i]
	e.nsets, e.group = 0, 0
	e.flags &^= flagHost
	b.release(name, i)
}

func (b *builder) add(h *Host) {
	name, err := AppendName(b.buf[:0], h.Name)
	switch {
	case err != nil:
	case h.PTR != "" && len(h.Addrs)+len(h.Ports) > 0:
		err = fmt.Errorf("%q: a host with a PTR cannot have addresses or ports", Clip(h.Name))
	case len(h.Addrs) > MaxAddrs:
		err = fmt.Errorf("%q has %d addresses, at most %d are allowed", Clip(h.Name), len(h.Addrs), MaxAddrs)
	case len(h.Ports) > MaxPorts:
		err = fmt.Errorf("%q has %d ports, at most %d are allowed", Clip(h.Name), len(h.Ports), MaxPorts)
	}
	if err != nil {
		b.errorf("host %w", err)
		return
	}
	if i := b.find(name); i >= 0 && b.x.names[i].flags&flagHost != 0 {
		b.errorf("host %q: another host already has the name", Clip(h.Name))
		return
	}
	ttl := b.ttl
	if h.Uncached {
		b.ttl = 0
	}
	sets, err := b.setsOf(name, h)
	b.ttl = ttl
	if err != nil {
		b.errorf("host %q: %w", Clip(h.Name), err)
		return
	}
	e := &b.x.names[b.make(name)]
	e.flags, e.group = e.flags|flagHost, h.Group
	b.x.mark(e)
	for i := range sets {
		b.x.addSet(e, &sets[i])
	}
}

// setsOf returns the records of a host. They are valid until the next call.
func (b *builder) setsOf(name []byte, h *Host) ([]rrset, error) {
	b.sets, b.body = b.sets[:0], b.body[:0]
	for i := range h.Addrs {
		if a := h.Addrs[i]; !a.IsValid() || a.Zone() != "" {
			return nil, fmt.Errorf("%q is not a valid host address; use one without a zone", a)
		}
	}
	for _, qtype := range [...]uint16{TypeA, TypeAAAA} {
		s, start := rrset{qtype: qtype}, len(b.body)
		for _, a := range h.Addrs {
			switch a = a.Unmap(); {
			case a.Is4() && qtype == TypeA:
				v := a.As4()
				b.record(qtype, len(v))
				b.body = append(b.body, v[:]...)
			case a.Is6() && qtype == TypeAAAA:
				v := a.As16()
				b.record(qtype, len(v))
				b.body = append(b.body, v[:]...)
			default:
				continue
			}
			s.count++
		}
		if s.body = b.body[start:]; s.count > 0 {
			b.sets = append(b.sets, s)
		}
	}
	if h.PTR != "" {
		to, err := AppendName(nil, h.PTR)
		if err != nil {
			return nil, fmt.Errorf("ptr: %w", err)
		}
		start := len(b.body)
		b.record(TypePTR, len(to))
		b.body = append(b.body, to...)
		b.sets = append(b.sets, rrset{qtype: TypePTR, count: 1, body: b.body[start:]})
	}
	if len(h.Ports) > 0 && !isWildcard(name) {
		addrs := b.sets
		b.srv(TypeSRV, "", name, h.Ports, addrs)
		b.portSets(name, h, addrs)
	}
	return b.sets, nil
}

// srv adds the SRV records of ports, followed by the addresses of the host. For a named port,
// label is the port's label in wire form and precedes the records; the question's name then
// starts with the label and _tcp.
func (b *builder) srv(qtype uint16, label string, host []byte, ports []Port, addrs []rrset) {
	s, start := rrset{qtype: qtype}, len(b.body)
	b.body = append(b.body, label...)
	for _, p := range ports {
		b.record(TypeSRV, 6+len(host))
		b.body = append(b.body, 0, 0, 0, 0) // priority and weight
		b.body = append(binary.BigEndian.AppendUint16(b.body, p.Number), host...)
		s.count++
	}
	owner := HeaderLen
	if label != "" {
		owner += len(label) + len(tcpLabel)
	}
	for _, a := range addrs {
		if a.qtype != TypeA && a.qtype != TypeAAAA {
			continue
		}
		at := len(b.body)
		b.body = append(b.body, a.body[:recordsLen(a.body, int(a.count))]...)
		for stride := (len(b.body) - at) / int(a.count); at < len(b.body); at += stride {
			binary.BigEndian.PutUint16(b.body[at:], pointer(owner))
		}
		s.more += a.count
	}
	s.body = b.body[start:]
	b.sets = append(b.sets, s)
}

// pointer returns a compression pointer to a position in the message (RFC 1035 section 4.1.4).
func pointer(at int) uint16 { return 0xc000 | uint16(at) }

// record appends a record of the question's name, without its data.
func (b *builder) record(qtype uint16, data int) {
	b.body = binary.BigEndian.AppendUint16(b.body, pointer(HeaderLen))
	b.body = binary.BigEndian.AppendUint16(b.body, qtype)
	b.body = binary.BigEndian.AppendUint16(b.body, ClassIN)
	b.body = binary.BigEndian.AppendUint32(b.body, b.ttl)
	b.body = binary.BigEndian.AppendUint16(b.body, uint16(data))
}

// portSets adds the SRV records of named ports.
func (b *builder) portSets(host []byte, h *Host, addrs []rrset) {
	byLabel := map[string][]Port{}
	for _, p := range h.Ports {
		if p.Name == "" {
			continue
		}
		label := "_" + strings.ToLower(p.Name)
		err := checkLabel(label, false)
		if err == nil && 1+len(label)+len(tcpLabel)+len(host) > MaxName {
			err = errors.New("the name is too long")
		}
		if err != nil {
			b.errorf("host %q, port %q: %w; the port has no SRV record with its name", Clip(h.Name), Clip(p.Name), err)
			continue
		}
		label = string(byte(len(label))) + label
		byLabel[label] = append(byLabel[label], p)
	}
	for _, label := range slices.Sorted(maps.Keys(byLabel)) {
		b.srv(typePort, label, host, byLabel[label], addrs)
	}
}
