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

// Host is a name with what it resolves to.
type Host struct {
	// Name is a host name, or a wildcard like *.example.com.
	Name  string
	Addrs []netip.Addr // in the order of the first answer; at most 64
	// Ports are those of the SRV records of the name; one with a name is also at _NAME._tcp.HOST.
	Ports []Port
	// PTR is what a reverse name points to; such a name has nothing else. See [ReverseName].
	PTR string
	// Group is the number of what the name belongs to, for views. Everybody sees what is in 0.
	Group uint32
}

// Port is a port of a host.
type Port struct {
	Name   string // "" for none
	Number uint16
}

// Options are those of a table.
type Options struct {
	// Suffixes are names below which there is nothing but what the table has, like "mesh".
	Suffixes []string
	// TTL of all answers in seconds, the negative ones too. 0 stands for 30.
	TTL uint32
}

const (
	defaultTTL = 30
	MaxAddrs   = 64
	MaxPorts   = 64
	// maxDelta is how many names may differ from the base of a table before all are indexed anew.
	maxDelta = 256
)

// New makes a table. Hosts with faults and those whose name another host has are left out; the
// errors say which and why. The first host with a name has it.
func New(o Options, hosts []Host) (*Table, []error) {
	b := newBuilder(cmp.Or(o.TTL, defaultTTL), nil, len(hosts)+len(hosts)/4)
	for _, s := range o.Suffixes {
		b.own(s)
	}
	for i := range hosts {
		b.add(&hosts[i])
	}
	x := newIndex(b.seed, len(b.nodes), b.records, b.size)
	b.each(x.add)
	return &Table{ttl: b.ttl, base: x}, b.errs
}

// With returns a table with some hosts replaced or added, and those of some names removed. It costs
// as much as what changes, but for one of 256 changes or so.
func (t *Table) With(put []Host, remove []string) (*Table, []error) {
	b := newBuilder(t.ttl, t, 2*(len(put)+len(remove)))
	for _, name := range remove {
		b.remove(name)
	}
	for i := range put {
		b.remove(put[i].Name)
		b.add(&put[i])
	}
	next := &Table{ttl: t.ttl, base: t.base}
	next.delta = newIndex(b.seed, len(b.nodes)+t.delta.len(), b.records+t.delta.records(), b.size+t.delta.size())
	b.each(next.delta.add)
	t.delta.each(func(name []byte, n *node) {
		if b.find(name, maphash.Bytes(b.seed, name)) == nil {
			next.delta.add(name, n)
		}
	})
	if next.delta.len() <= maxDelta {
		return next, b.errs
	}
	x := newIndex(b.seed, next.delta.len()+t.base.len(), next.delta.records()+t.base.records(),
		next.delta.size()+t.base.size())
	next.each(x.add)
	return &Table{ttl: t.ttl, base: x}, b.errs
}

func (b *builder) errorf(format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf(format, args...))
}

// node returns the node of a name to be changed; nil where there is none.
func (b *builder) node(name []byte, h uint64) *node {
	if n := b.find(name, h); n != nil || b.under == nil {
		return n
	}
	f := b.under.get(name)
	if !f.ok() {
		return nil
	}
	n := b.insert(name, h)
	kept := n.name
	f.x.fill(n, f.e)
	n.name = kept
	b.records += len(n.sets)
	for i := range n.sets {
		b.size += len(n.sets[i].body)
	}
	return n
}

// make returns the node of a name, which is made with those above it where it is missing.
func (b *builder) make(name []byte) *node {
	h := maphash.Bytes(b.seed, name)
	n := b.node(name, h)
	if n != nil && !n.empty() {
		return n
	}
	if n == nil {
		n = b.insert(name, h)
	}
	if parent := name[1+name[0]:]; parent[0] != 0 {
		b.make(parent).children++
	}
	return n
}

// release removes a node that has become empty, and those above it that have.
func (b *builder) release(name []byte, n *node) {
	for n.empty() {
		name = name[1+name[0]:]
		if name[0] == 0 {
			return
		}
		if n = b.node(name, maphash.Bytes(b.seed, name)); n == nil {
			return
		}
		n.children--
	}
}

func (b *builder) own(suffix string) {
	name, err := AppendName(b.buf[:0], suffix)
	if err == nil && isWildcard(name) {
		err = fmt.Errorf("%q is a wildcard; give the suffix alone", Clip(suffix))
	}
	if err != nil {
		b.errorf("suffix %w", err)
		return
	}
	b.make(name).flags |= flagOwned
}

func (b *builder) remove(host string) {
	name, err := AppendName(b.buf[:0], host)
	if err != nil {
		return // it was never there
	}
	n := b.node(name, maphash.Bytes(b.seed, name))
	if n == nil || n.flags&flagHost == 0 {
		return
	}
	n.sets, n.group = nil, 0
	n.flags &^= flagHost
	b.release(name, n)
}

func (b *builder) add(h *Host) {
	name, err := AppendName(b.buf[:0], h.Name)
	switch {
	case err != nil:
	case h.PTR != "" && len(h.Addrs)+len(h.Ports) > 0:
		err = fmt.Errorf("%q: it has a PTR and other records; give these another name", Clip(h.Name))
	case len(h.Addrs) > MaxAddrs:
		err = fmt.Errorf("%q: it has %d addresses, at most %d are allowed", Clip(h.Name), len(h.Addrs), MaxAddrs)
	case len(h.Ports) > MaxPorts:
		err = fmt.Errorf("%q: it has %d ports, at most %d are allowed", Clip(h.Name), len(h.Ports), MaxPorts)
	}
	if err != nil {
		b.errorf("host %w", err)
		return
	}
	if n := b.node(name, maphash.Bytes(b.seed, name)); n != nil && n.flags&flagHost != 0 {
		b.errorf("host %q: another host has the name already", Clip(h.Name))
		return
	}
	sets, err := b.setsOf(name, h)
	if err != nil {
		b.errorf("host %q: %w", Clip(h.Name), err)
		return
	}
	n := b.make(name)
	n.flags, n.group, n.sets = n.flags|flagHost, h.Group, b.keepSets(sets)
}

// setsOf makes the records of a host. They are good until it is called again.
func (b *builder) setsOf(name []byte, h *Host) ([]rrset, error) {
	out := b.sets[:0]
	for i := range h.Addrs {
		if a := h.Addrs[i]; !a.IsValid() || a.Zone() != "" {
			return nil, fmt.Errorf("%q is no address of a host; give one without a zone", a)
		}
	}
	for _, qtype := range [...]uint16{TypeA, TypeAAAA} {
		s := rrset{qtype: qtype}
		b.body = b.body[:0]
		for _, a := range h.Addrs {
			switch a = a.Unmap(); {
			case a.Is4() && qtype == TypeA:
				v := a.As4()
				b.body = append(b.record(b.body, HeaderLen, qtype, len(v)), v[:]...)
			case a.Is6() && qtype == TypeAAAA:
				v := a.As16()
				b.body = append(b.record(b.body, HeaderLen, qtype, len(v)), v[:]...)
			default:
				continue
			}
			s.count++
		}
		if s.count > 0 {
			s.body = b.keep(b.body)
			out = append(out, s)
		}
	}
	if h.PTR != "" {
		to, err := AppendName(nil, h.PTR)
		if err != nil {
			return nil, fmt.Errorf("ptr: %w", err)
		}
		out = append(out,
			rrset{qtype: TypePTR, count: 1, body: b.keep(append(b.record(nil, HeaderLen, TypePTR, len(to)), to...))})
	}
	if len(h.Ports) > 0 && !isWildcard(name) {
		named := b.portSets(name, h, out)
		whole := b.srv(name, 0, h.Ports, out)
		for _, s := range append([]rrset{whole}, named...) {
			s.body = b.keep(s.body)
			out = append(out, s)
		}
	}
	b.sets = out
	return out, nil
}

// srv makes the SRV records of ports, with the addresses of the host behind them. skip is how many
// bytes stand before the name of the host in the name asked for.
func (b *builder) srv(host []byte, skip int, ports []Port, addrs []rrset) rrset {
	s := rrset{qtype: TypeSRV}
	for _, p := range ports {
		s.body = b.record(s.body, HeaderLen, TypeSRV, 6+len(host))
		s.body = append(s.body, 0, 0, 0, 0) // priority and weight
		s.body = append(binary.BigEndian.AppendUint16(s.body, p.Number), host...)
		s.count++
	}
	for _, a := range addrs {
		if a.qtype != TypeA && a.qtype != TypeAAAA {
			continue
		}
		at := len(s.body)
		s.body = append(s.body, a.body...)
		for stride := len(a.body) / int(a.count); at < len(s.body); at += stride {
			binary.BigEndian.PutUint16(s.body[at:], pointer(HeaderLen+skip))
		}
		s.more += a.count
	}
	return s
}

// pointer is a name that stands elsewhere in the message (RFC 1035 section 4.1.4).
func pointer(at int) uint16 { return 0xc000 | uint16(at) }

// record appends a record up to its data.
func (b *builder) record(to []byte, owner int, qtype uint16, data int) []byte {
	to = binary.BigEndian.AppendUint16(to, pointer(owner))
	to = binary.BigEndian.AppendUint16(to, qtype)
	to = binary.BigEndian.AppendUint16(to, ClassIN)
	to = binary.BigEndian.AppendUint32(to, b.ttl)
	return binary.BigEndian.AppendUint16(to, uint16(data))
}

// portSets makes the sets of named ports: the label of each, and its SRV records.
func (b *builder) portSets(host []byte, h *Host, addrs []rrset) (out []rrset) {
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
			b.errorf("host %q, port %q: %w: it has no SRV record of its own", Clip(h.Name), Clip(p.Name), err)
			continue
		}
		byLabel[string(byte(len(label)))+label] = append(byLabel[string(byte(len(label)))+label], p)
	}
	for _, label := range slices.Sorted(maps.Keys(byLabel)) {
		s := b.srv(host, len(label)+len(tcpLabel), byLabel[label], addrs)
		s.qtype, s.body = typePort, append([]byte(label), s.body...)
		out = append(out, s)
	}
	return out
}
