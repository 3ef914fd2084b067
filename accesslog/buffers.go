package accesslog

import (
	"sync"
	"sync/atomic"
)

// DefaultMemory bounds the buffers of a package's sources together, beyond one small buffer each.
const DefaultMemory = 64 << 20

// Buffers has the buffers of several sources. It bounds what they take together beyond one
// baseBuffer each, so that memory does not grow with what they send, and uses buffers of the two
// usual sizes again. Its methods may be called at the same time; a nil one makes each buffer anew
// and has no bound.
type Buffers struct {
	rest       atomic.Int64 // bytes beyond a baseBuffer each
	base, flow sync.Pool    // of *buffer
}

func NewBuffers(size int) *Buffers {
	m := &Buffers{
		base: sync.Pool{New: func() any { return &buffer{bytes: make([]byte, BaseBuffer)} }},
		flow: sync.Pool{New: func() any { return &buffer{bytes: make([]byte, FlowBuffer)} }},
	}
	m.rest.Store(int64(size))
	return m
}

// Left returns how many more bytes large buffers may take.
func (m *Buffers) Left() int64 { return m.rest.Load() }

// buffer is what a source reads into.
type buffer struct {
	bytes  []byte
	charge int64
	of     *Buffers
}

// take returns a buffer of a size, or nil where the bound is reached. One of up to baseBuffer is
// always there.
func (m *Buffers) take(size int) *buffer {
	if m == nil {
		return &buffer{bytes: make([]byte, size)}
	}
	charge := int64(max(size-BaseBuffer, 0))
	if charge > 0 && m.rest.Add(-charge) < 0 {
		m.rest.Add(charge)
		return nil
	}
	var out *buffer
	switch size {
	case BaseBuffer:
		out = m.base.Get().(*buffer)
	case FlowBuffer:
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
	m.rest.Add(b.charge)
	b.of = nil
	switch len(b.bytes) {
	case BaseBuffer:
		m.base.Put(b)
	case FlowBuffer:
		m.flow.Put(b)
	}
}
