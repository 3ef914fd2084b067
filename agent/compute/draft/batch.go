package draft

import "slices"

// Batch is a sequence of resources that a [Sealer] has sealed. It is immutable.
type Batch struct {
	resources [NumTypes][]*Resource
	pipes     []Pipe
	headed    []headedRoute
	headers   *Headers // headers that the routes of headed add; nil for none
	moved     [NumTypes]*movedList
}

// headedRoute is a route configuration whose wire form ends with the headers that it adds.
type headedRoute struct {
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
		p.headed, p.headers = append(p.headed, headedRoute{h.at - m.resources[RankRoute], h.length}), s.headers
	}
	return p, true
}

// AddBatch adds a batch that this or another sealer has sealed.
func (s *Sealer) AddBatch(p *Batch) {
	for rank, list := range p.resources {
		s.out.Resources[rank] = append(s.out.Resources[rank], list...)
	}
	s.out.Pipes = append(s.out.Pipes, p.pipes...)
}

// Headers returns the headers that routes of the batch add; nil for none.
func (b *Batch) Headers() *Headers { return b.headers }
