package accesslog

import (
	"sync"
	"sync/atomic"
)

// memory has the buffers of several sources. It bounds what they take together beyond one
// baseBuffer each, so that memory does not grow with what they send, and uses buffers of the two
// usual sizes again. Its methods may be called at the same time; a nil one makes each buffer anew
// and has no bound.
type memory struct {
	left       atomic.Int64 // bytes beyond a baseBuffer each
	base, flow sync.Pool    // of *buffer
}

func newMemory(size int) *memory {
	m := &memory{
		base: sync.Pool{New: func() any { return &buffer{bytes: make([]byte, baseBuffer)} }},
		flow: sync.Pool{New: func() any { return &buffer{bytes: make([]byte, flowBuffer)} }},
	}
	m.left.Store(int64(size))
	return m
}

// buffer is what a source reads into.
type buffer struct {
	bytes  []byte
	charge int64
	of     *memory
}

// take returns a buffer of a size, or nil where the bound is reached. One of up to baseBuffer is
// always there.
func (m *memory) take(size int) *buffer {
	if m == nil {
		return &buffer{bytes: make([]byte, size)}
	}
	charge := int64(max(size-baseBuffer, 0))
	if charge > 0 && m.left.Add(-charge) < 0 {
		m.left.Add(charge)
		return nil
	}
	var out *buffer
	switch size {
	case baseBuffer:
		out = m.base.Get().(*buffer)
	case flowBuffer:
		out = m.flow.Get().(*buffer)
	default:
		out = &buffer{bytes: make([]byte, size)}
	}
	out.charge, out.of = charge, m
	return out
}

// release gives a buffer back. It is not used after.
func (b *buffer) release() {
	m := b.of
	if m == nil {
		return
	}
	m.left.Add(b.charge)
	b.of = nil
	switch len(b.bytes) {
	case baseBuffer:
		m.base.Put(b)
	case flowBuffer:
		m.flow.Put(b)
	}
}
