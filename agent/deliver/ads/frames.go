package ads

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The parts of HTTP/2 (RFC 9113) that are parsed here, and the prefix of gRPC messages: one byte
// for compression and four bytes for the length.
const (
	prefaceBytes     = 24
	frameHeaderBytes = 9
	prefixBytes      = 5

	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3

	flagEndStream = 0x1
	flagPadded    = 0x8
)

// frames parses the bytes that a client sends on one connection and reports the gRPC messages in
// them. It validates only the fields that it reads, because the HTTP/2 server validates the others.
type frames struct {
	begin func(size int) (reserved int64, err error) // a message of this size begins
	drop  func(reserved int64)                       // an incomplete message was dropped
	full  func(reserved int64)                       // a message is complete

	maxPartial int // maximum number of incomplete messages

	preface int // number of bytes read
	head    [frameHeaderBytes]byte
	have    int // number of bytes in head
	left    int // remaining bytes of the frame
	pad     int // padding bytes among them
	padded  bool
	stream  uint32
	partial map[uint32]message // by stream
}

// message is an incomplete message.
type message struct {
	prefix   [prefixBytes]byte
	have     int // number of bytes in prefix
	left     int // remaining bytes
	reserved int64
}

var errPadding = errors.New("xds: a frame has more padding than bytes")

// feed parses the next bytes of the connection.
func (f *frames) feed(p []byte) error {
	if n := min(prefaceBytes-f.preface, len(p)); n > 0 {
		f.preface += n
		p = p[n:]
	}
	for len(p) > 0 {
		if f.have < frameHeaderBytes {
			n := copy(f.head[f.have:], p)
			f.have += n
			p = p[n:]
			if f.have < frameHeaderBytes {
				return nil
			}
			f.beginFrame()
		} else {
			n, err := f.payload(p)
			if err != nil {
				return err
			}
			p = p[n:]
		}
		if f.left == 0 {
			f.endFrame()
		}
	}
	return nil
}

func (f *frames) beginFrame() {
	f.left = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
	f.stream = binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31)
	f.pad, f.padded = 0, f.head[3] == frameData && f.head[4]&flagPadded != 0 && f.left > 0
	if f.head[3] == frameReset {
		f.forget(f.stream)
	}
}

func (f *frames) endFrame() {
	f.have = 0
	if kind := f.head[3]; (kind == frameData || kind == frameHeaders) && f.head[4]&flagEndStream != 0 {
		f.forget(f.stream)
	}
}

// payload parses bytes of the present frame and returns their number.
func (f *frames) payload(p []byte) (n int, err error) {
	if f.padded {
		f.padded, f.pad = false, int(p[0])
		if f.left--; f.pad > f.left {
			return 0, errPadding
		}
		return 1, nil
	}
	if data := f.left - f.pad; f.head[3] == frameData && data > 0 {
		n = min(len(p), data)
		err = f.data(p[:n])
	} else {
		n = min(len(p), f.left)
	}
	f.left -= n
	return n, err
}

// data parses bytes of the messages of a stream.
func (f *frames) data(p []byte) error {
	m, known := f.partial[f.stream]
	for len(p) > 0 {
		if m.have < prefixBytes {
			n := copy(m.prefix[m.have:], p)
			m.have += n
			p = p[n:]
			if m.have < prefixBytes {
				break
			}
			m.left = int(binary.BigEndian.Uint32(m.prefix[1:]))
			var err error
			if m.reserved, err = f.begin(m.left); err != nil {
				return err
			}
			if m.left == 0 {
				f.full(m.reserved)
				m = message{}
				continue
			}
		}
		n := min(len(p), m.left)
		m.left -= n
		p = p[n:]
		if m.left == 0 {
			f.full(m.reserved)
			m = message{}
		}
	}
	switch {
	case m.have == 0:
		delete(f.partial, f.stream)
		return nil
	case f.partial == nil:
		f.partial = map[uint32]message{}
	case !known && len(f.partial) >= f.maxPartial:
		f.drop(m.reserved)
		return fmt.Errorf("xds: more than %d messages are incomplete on one connection", f.maxPartial)
	}
	f.partial[f.stream] = m
	return nil
}

// forget drops the incomplete message of a stream.
func (f *frames) forget(stream uint32) {
	if m, known := f.partial[stream]; known {
		delete(f.partial, stream)
		f.drop(m.reserved)
	}
}
