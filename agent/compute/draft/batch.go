package draft

import (
	"bytes"
	"slices"
)

// Batch is a sequence of resources that a [Sealer] has sealed. It is immutable.
type Batch struct {
	resources [NumTypes][]*Resource
	pipes     []Pipe
	headed    []headed
	headers   *Headers // headers that the routes of headed add; nil for none
}

// headed is a route configuration whose wire form ends with the headers that it adds.
type headed struct {
	at     int // index in the list of routes
	length int // size in bytes without the headers
}

// Mark is a position in the output of a [Sealer].
type Mark struct {
	resources             [NumTypes]int
	pipes, faults, headed int
}

// Mark returns the current position.
func (s *Sealer) Mark() Mark {
	m := Mark{pipes: len(s.out.Pipes), faults: len(s.faults), headed: len(s.headed)}
	for rank, list := range s.out.Resources {
		m.resources[rank] = len(list)
	}
	return m
}

// Since returns the resources that were sealed since a position. ok is false if one of them has a
// fault.
func (s *Sealer) Since(m Mark) (p Batch, ok bool) {
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

// AddBatch adds a batch that this or another sealer has sealed. Its routes add the headers h, which
// must be valid, as those of [NewHeaders] are. AddBatch returns the added batch, which is p itself
// if none of its routes adds headers or the headers are the same.
func (s *Sealer) AddBatch(p *Batch, h *Headers) *Batch {
	if p.headers != nil && !bytes.Equal(p.headers.field, h.field) {
		p = s.withHeaders(p, h)
	}
	for rank, list := range p.resources {
		s.out.Resources[rank] = append(s.out.Resources[rank], list...)
	}
	s.out.Pipes = append(s.out.Pipes, p.pipes...)
	return p
}

// withHeaders returns a batch whose routes add other headers. The headers are the last fields of
// the wire form.
func (s *Sealer) withHeaders(p *Batch, h *Headers) *Batch {
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
