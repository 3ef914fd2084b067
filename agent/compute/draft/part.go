package draft

import (
	"bytes"
	"slices"
)

// Part is some of what a [Sealer] has sealed, immutable.
type Part struct {
	resources [NumTypes][]*Resource
	pipes     []Pipe
	headed    []headed
	headers   *Headers // which the routes of headed add; nil: there are none of them
}

// headed is a list of routes that ends with the headers which it adds.
type headed struct {
	at     int // in the list of routes
	length int // in bytes, without the headers
}

// Mark is a place in what a [Sealer] has sealed so far.
type Mark struct {
	resources             [NumTypes]int
	pipes, faults, headed int
}

// Mark returns the present place.
func (s *Sealer) Mark() Mark {
	m := Mark{pipes: len(s.out.Pipes), faults: len(s.faults), headed: len(s.headed)}
	for rank, list := range s.out.Resources {
		m.resources[rank] = len(list)
	}
	return m
}

// Since returns what was sealed since a place, false where something of it has a fault.
func (s *Sealer) Since(m Mark) (p Part, ok bool) {
	if len(s.faults) > m.faults {
		return p, false
	}
	for rank, list := range s.out.Resources {
		p.resources[rank] = slices.Clone(list[m.resources[rank]:])
	}
	p.pipes = slices.Clone(s.out.Pipes[m.pipes:])
	for _, h := range s.headed[m.headed:] {
		p.headed, p.headers = append(p.headed, headed{h.at - m.resources[RankRoute], h.length}), s.headers
	}
	return p, true
}

// AddPart adds what was sealed before, by this sealer or another one, with the headers that the
// routes of this one add. It returns it as it is added: the same part where it has no routes with
// headers, or the same ones. The headers must be valid, as [NewHeaders] returns them.
func (s *Sealer) AddPart(p *Part, h *Headers) *Part {
	if p.headers != nil && !bytes.Equal(p.headers.field, h.field) {
		p = s.withHeaders(p, h)
	}
	for rank, list := range p.resources {
		s.out.Resources[rank] = append(s.out.Resources[rank], list...)
	}
	s.out.Pipes = append(s.out.Pipes, p.pipes...)
	return p
}

// withHeaders returns a part whose routes add other headers. They end the wire form of each.
func (s *Sealer) withHeaders(p *Part, h *Headers) *Part {
	next := *p
	next.headers = h
	routes := slices.Clone(p.resources[RankRoute])
	for _, x := range p.headed {
		r := routes[x.at]
		s.scratch = append(append(s.scratch[:0], r.Body()[:x.length]...), h.field...)
		routes[x.at] = s.pool.Seal(RankRoute, r.Name, s.scratch)
	}
	next.resources[RankRoute] = routes
	return &next
}
