package draft

import (
	"bytes"
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Proxies of a mesh have the same listeners and routes at different addresses. A batch is sealed
// for the first of them. For the others, the addresses are written into the wire form, which costs
// a twentieth of building and encoding the messages.

// Address is the address of an outbound listener.
type Address struct {
	IP   netip.Addr
	Port uint32
}

// OutboundPrefix begins the names of outbound listeners.
const OutboundPrefix = "outbound:"

// Name returns the name of the listener at the address.
func (a Address) Name() string {
	return OutboundPrefix + net.JoinHostPort(a.IP.String(), strconv.FormatUint(uint64(a.Port), 10))
}

// Template is a batch that can be moved to other addresses, with other request headers. It is
// immutable.
type Template struct {
	batch             *Batch
	addresses         []Address
	listeners, routes movable
}

// movable is a list of resources that can be moved.
type movable struct {
	digest [sha256.Size]byte // of everything but the addresses and headers
	items  []movableItem
	names  []string // of the listeners
}

type movableItem struct {
	resource *Resource
	index    int // in addresses
	holes    []hole
}

// hole is a part of a wire form that a move replaces.
type hole struct {
	kind    holeKind
	at, end int
	until   int // end of the value that a holeLength precedes
}

type holeKind byte

const (
	holeLength  holeKind = iota // varint with the length of a value that has holes
	holeName                    // name of the listener
	holeAddress                 // text of the address
	holePort                    // varint
	holeHeaders                 // encoded request headers
)

// NewTemplate returns a template of a batch whose listeners are at the given addresses, in this
// order. It returns nil if the batch has other listeners, or if something else in it depends on the
// addresses. Nil means that the batch cannot be moved: it can only get other headers.
func NewTemplate(b *Batch, addresses []Address) *Template {
	t := &Template{batch: b, addresses: addresses}
	if addresses == nil {
		for i, r := range b.resources[RankRoute] {
			t.routes.items = append(t.routes.items, movableItem{resource: r, holes: b.headersOf(i, r)})
		}
		t.routes.hash()
		return t
	}
	if len(b.resources[RankListener]) != len(addresses) {
		return nil
	}
	indexes, names := make(map[string]int, len(addresses)), make([]string, len(addresses))
	for i, l := range b.resources[RankListener] {
		if _, double := indexes[l.Name]; double || l.Name != addresses[i].Name() || escapeListener.Replace(l.Name) != l.Name {
			return nil
		}
		indexes[l.Name], names[i] = i, l.Name
		if !t.listeners.add(l, i, addresses[i], listenerHoles, nil) {
			return nil
		}
	}
	for i, r := range b.resources[RankRoute] {
		name, _, _ := strings.Cut(r.Name, "#")
		at, known := indexes[name]
		if !known || !t.routes.add(r, at, addresses[at], routeHoles, b.headersOf(i, r)) {
			return nil
		}
	}
	for _, c := range b.resources[RankCluster] {
		if bytes.Contains(c.Body(), []byte(OutboundPrefix)) {
			return nil
		}
	}
	t.listeners.names, t.routes.names = names, names
	t.listeners.hash()
	t.routes.hash()
	return t
}

// headersOf returns the hole for the headers of the i-th route configuration, which are its last
// fields, if it has any.
func (b *Batch) headersOf(i int, r *Resource) []hole {
	at, ok := slices.BinarySearchFunc(b.headed, i, func(h headedRoute, i int) int { return h.at - i })
	if !ok {
		return nil
	}
	return []hole{{kind: holeHeaders, at: b.headed[at].length, end: r.Len()}}
}

// add adds a resource of a listener. more are the holes that follow its fields.
func (m *movable) add(r *Resource, index int, at Address, fields holeFields, more []hole) bool {
	body, name := r.Body(), at.Name()
	f := holeFinder{body: body, name: name, address: at.IP.String(), port: uint64(at.Port)}
	end := len(body)
	if len(more) > 0 {
		end = more[0].at
	}
	if !f.message(0, end, fields) || bytes.Count(body, []byte(name)) != f.names {
		return false
	}
	m.items = append(m.items, movableItem{r, index, slices.Concat(f.holes, more)})
	return true
}

// hash computes the digest.
func (m *movable) hash() {
	h := sha256.New()
	var b []byte
	for i := range m.items {
		x, at := &m.items[i], 0
		body := x.resource.Body()
		b = protowire.AppendVarint(b[:0], uint64(x.index))
		for j := range x.holes {
			b = protowire.AppendBytes(b, body[at:x.holes[j].at])
			b = append(b, byte(x.holes[j].kind))
			at = x.holes[j].end
		}
		h.Write(protowire.AppendBytes(b, body[at:]))
	}
	h.Sum(m.digest[:0])
}

// holeFields lists the fields with holes of a message.
type holeFields map[protowire.Number]holeField

type holeField struct {
	kind   holeKind   // holeLength for a message
	fields holeFields // of the message
	url    string     // the message is an Any; only this type has holes
}

var (
	chainHoles = holeFields{fieldChainFilters: {fields: holeFields{fieldFilterConfig: {url: hcmURL,
		fields: holeFields{fieldAnyValue: {fields: holeFields{fieldManagerRDS: {
			fields: holeFields{fieldRDSName: {kind: holeName}}}}}}}}}}
	listenerHoles = holeFields{
		fieldListenerName: {kind: holeName},
		fieldListenerAddress: {fields: holeFields{fieldSocketAddress: {fields: holeFields{
			fieldSocketHost: {kind: holeAddress}, fieldSocketPort: {kind: holePort}}}}},
		fieldListenerChains:  {fields: chainHoles},
		fieldListenerDefault: {fields: chainHoles},
	}
	routeHoles = holeFields{fieldRoutesName: {kind: holeName}}
)

// holeFinder collects the holes of a wire form, in order.
type holeFinder struct {
	body          []byte
	name, address string
	port          uint64
	holes         []hole
	names         int // holes with the name
}

// message collects the holes of a message. It returns false if a field has an unexpected value.
func (f *holeFinder) message(from, to int, fields holeFields) bool {
	for at := from; at < to; {
		n, typ, tag := protowire.ConsumeTag(f.body[at:to])
		if tag < 0 {
			return false
		}
		at += tag
		size := protowire.ConsumeFieldValue(n, typ, f.body[at:to])
		if size < 0 {
			return false
		}
		if x, ok := fields[n]; ok && !f.field(at, at+size, typ, &x) {
			return false
		}
		at += size
	}
	return true
}

func (f *holeFinder) field(from, to int, typ protowire.Type, x *holeField) bool {
	if x.kind == holePort {
		v, _ := protowire.ConsumeVarint(f.body[from:to])
		f.holes = append(f.holes, hole{kind: holePort, at: from, end: to})
		return typ == protowire.VarintType && v == f.port
	}
	if typ != protowire.BytesType {
		return false
	}
	_, n := protowire.ConsumeVarint(f.body[from:to])
	begin, value := from+n, f.body[from+n:to]
	before := len(f.holes)
	f.holes = append(f.holes, hole{kind: holeLength, at: from, end: begin, until: to})
	switch x.kind {
	case holeName:
		rest, ok := bytes.CutPrefix(value, []byte(f.name))
		if ok = ok && (len(rest) == 0 || rest[0] == '#'); !ok { // a name that does not depend on the address
			f.holes = f.holes[:before]
			return true
		}
		f.names++
		f.holes = append(f.holes, hole{kind: holeName, at: begin, end: begin + len(f.name)})
	case holeAddress:
		f.holes = append(f.holes, hole{kind: holeAddress, at: begin, end: to})
		return string(value) == f.address
	default:
		if x.url == "" || textAt(value, fieldAnyURL) == x.url {
			if !f.message(begin, to, x.fields) {
				return false
			}
		}
		if len(f.holes) == before+1 {
			f.holes = f.holes[:before]
		}
	}
	return true
}
