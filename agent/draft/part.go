package draft

import "slices"

// Part is some of what a [Sealer] has sealed, immutable.
type Part struct {
	resources [NumTypes][]*Resource
	pipes     []Pipe
}

// Mark is a place in what a [Sealer] has sealed so far.
type Mark struct {
	resources     [NumTypes]int
	pipes, faults int
}

// Mark returns the present place.
func (s *Sealer) Mark() Mark {
	m := Mark{pipes: len(s.out.Pipes), faults: len(s.faults)}
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
	return p, true
}

// AddPart adds what was sealed before.
func (s *Sealer) AddPart(p *Part) {
	for rank, list := range p.resources {
		s.out.Resources[rank] = append(s.out.Resources[rank], list...)
	}
	s.out.Pipes = append(s.out.Pipes, p.pipes...)
}
