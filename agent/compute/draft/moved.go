package draft

import (
	"bytes"
	"crypto/sha256"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// movedList is a list of resources that were moved. Batches hold it, and a [Pool] finds it by its
// key.
type movedList struct {
	key  movedKey
	list []*Resource
}

// movedKey is a hash of a list of movable resources, addresses, and headers.
type movedKey [sha256.Size]byte

// AddMoved adds the batch of a template at other addresses, whose number must be that of the
// template's, and with other headers. The addresses are ignored if the template cannot be moved.
// AddMoved returns the added batch.
func (s *Sealer) AddMoved(t *Template, addresses []Address, h *Headers) *Batch {
	next := *t.batch
	moves := t.addresses != nil && !slices.Equal(addresses, t.addresses)
	var at []byte
	for i := range addresses {
		at = append(at, byte(addresses[i].IP.BitLen()))
		at = append(at, addresses[i].IP.AsSlice()...)
		at = protowire.AppendVarint(at, uint64(addresses[i].Port))
	}
	names := t.routes.names
	if moves {
		names = make([]string, len(addresses))
		for i := range addresses {
			names[i] = addresses[i].Name()
		}
		next.set(RankListener, s.moved(RankListener, &t.listeners, at, addresses, names, nil))
	}
	if headed := t.batch.headers != nil; moves || headed && !bytes.Equal(h.Bytes(), t.batch.headers.field) {
		if headed {
			next.headers = h
			at = append(at, h.Bytes()...)
		}
		next.set(RankRoute, s.moved(RankRoute, &t.routes, at, addresses, names, next.headers))
		next.headed = make([]headedRoute, len(t.batch.headed))
		for i, x := range t.batch.headed {
			next.headed[i] = headedRoute{x.at, next.resources[RankRoute][x.at].Len() - len(h.Bytes())}
		}
	}
	s.AddBatch(&next)
	return &next
}

func (b *Batch) set(rank int, l *movedList) { b.resources[rank], b.moved[rank] = l.list, l }

// moved returns the resources of a list at other addresses, at which listeners have other names.
func (s *Sealer) moved(rank int, m *movable, at []byte, addresses []Address, names []string, h *Headers) *movedList {
	key := movedKey(sha256.Sum256(append(m.digest[:], at...)))
	if have := s.pool.moved[key].Value(); have != nil {
		return have
	}
	l := &movedList{key, make([]*Resource, len(m.items))}
	w := writer{names: names, addresses: addresses, headers: h.Bytes()}
	for i := range m.items {
		x := &m.items[i]
		if len(x.holes) == 0 {
			l.list[i] = x.resource
			continue
		}
		s.unpacked = x.resource.AppendBody(s.unpacked[:0])
		s.scratch = w.append(s.scratch[:0], s.unpacked, x)
		if m.names == nil {
			l.list[i] = s.sealMoved(rank, x.resource, "", "", s.scratch)
		} else {
			l.list[i] = s.sealMoved(rank, x.resource, m.names[x.index], names[x.index], s.scratch)
		}
	}
	s.pool.addMoved(l)
	return l
}

// sealMoved seals a resource that differs from another one in the name of the listener. The pool
// does not know it: only the next config of the proxy has it, too.
func (s *Sealer) sealMoved(rank int, from *Resource, listener, to string, body []byte) *Resource {
	name, version := to+from.Name[len(listener):], versionOfBody(body)
	if s.Previous != nil {
		if have := Find(s.Previous.Resources[rank], name); have != nil && have.Version == version {
			return have
		}
	}
	refs := from.Refs()
	if rank == RankListener {
		refs = refs.Renamed(envoy.KindRoute, listener, to)
	}
	return from.Like(name, version, body, refs)
}

// writer fills the holes of wire forms.
type writer struct {
	names     []string
	addresses []Address
	headers   []byte

	ip    netip.Addr // of text
	text  string
	sizes []int // of the contents of the holes
	port  [10]byte
}

// append appends the wire form with other contents of its holes.
func (w *writer) append(b, body []byte, x *movableItem) []byte {
	w.sizes = append(w.sizes[:0], make([]int, len(x.holes))...)
	for i := len(x.holes) - 1; i >= 0; i-- {
		if hole := &x.holes[i]; hole.kind == holeLength {
			w.sizes[i] = protowire.SizeVarint(w.length(x, i))
		} else {
			text, raw := w.content(hole.kind, x.index)
			w.sizes[i] = len(text) + len(raw)
		}
	}
	at := 0
	for i := range x.holes {
		hole := &x.holes[i]
		b = append(b, body[at:hole.at]...)
		if at = hole.end; hole.kind == holeLength {
			b = protowire.AppendVarint(b, w.length(x, i))
		} else {
			text, raw := w.content(hole.kind, x.index)
			b = append(append(b, text...), raw...)
		}
	}
	return append(b, body[at:]...)
}

// length returns the length of the value after the hole i.
func (w *writer) length(x *movableItem, i int) uint64 {
	n := x.holes[i].until - x.holes[i].end
	for j := i + 1; j < len(x.holes) && x.holes[j].at < x.holes[i].until; j++ {
		n += w.sizes[j] - (x.holes[j].end - x.holes[j].at)
	}
	return uint64(n) // #nosec G115 -- never negative
}

// content returns the content of a hole as a text or as bytes.
func (w *writer) content(kind holeKind, index int) (text string, raw []byte) {
	switch kind {
	case holeName:
		return w.names[index], nil
	case holeAddress:
		if w.ip != w.addresses[index].IP {
			w.ip = w.addresses[index].IP
			w.text = w.ip.String()
		}
		return w.text, nil
	case holePort:
		return "", protowire.AppendVarint(w.port[:0], uint64(w.addresses[index].Port))
	default:
		return "", w.headers
	}
}
