package accesslog

import (
	"sync"
	"sync/atomic"
)

// DefaultMemory limits the buffers of all sources of a package, in addition to one base buffer
// each.
const DefaultMemory = 64 << 20

// Buffers allocates the buffers of several sources. It limits their total size beyond one
// BaseBuffer each, so memory does not grow with the traffic, and reuses buffers of the two common
// sizes. It is safe for concurrent use. A nil Buffers has no limit and does not reuse buffers.
type Buffers struct {
	rest       atomic.Int64 // bytes available for buffers beyond BaseBuffer
	base, flow sync.Pool    // of *buffer
}

// NewBuffers returns Buffers with a limit of size bytes.
func NewBuffers(size int) *Buffers {
	m := &Buffers{
		base: sync.Pool{New: func() any { return &buffer{bytes: make([]byte, BaseBuffer)} }},
		flow: sync.Pool{New: func() any { return &buffer{bytes: make([]byte, FlowBuffer)} }},
	}
	m.rest.Store(int64(size))
	return m
}

// Left returns the number of bytes still available for large buffers.
func (m *Buffers) Left() int64 { return m.rest.Load() }

// buffer holds the data of one source.
type buffer struct {
	bytes  []byte
	charge int64
	of     *Buffers
}

// take returns a buffer, or nil if the limit is reached. Sizes up to BaseBuffer never fail.
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

// release returns a buffer. The caller must not use it afterwards.
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
