package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// A stream is a TCP connection that carries messages in one direction. Each message follows its
// length (4 bytes, big endian). memberlist encrypts stream messages like packets.

// stream is an outbound stream. It may not be connected yet.
type stream struct {
	queue chan []byte
	bytes int // under transport.mu; queued
}

var (
	errStreamFull  = errors.New("gossip: the queue to a peer is full")
	errStreamsFull = errors.New("gossip: too many streams to peers are open")
)

// writeStream queues a message on the stream to an address, and opens the stream if necessary. It
// does not block.
func (t *transport) writeStream(b []byte, addr string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return net.ErrClosed
	}
	s := t.outbound[addr]
	if s == nil {
		if len(t.outbound) >= maxOutbound {
			t.counters.dropped.Add(1)
			return errStreamsFull
		}
		s = &stream{queue: make(chan []byte, 1024)}
		t.outbound[addr] = s
		t.wg.Go(func() { t.runStream(addr, s) })
	}
	if s.bytes+len(b) > outboundMemory {
		t.counters.dropped.Add(1)
		return errStreamFull
	}
	select {
	case s.queue <- b:
		s.bytes += len(b)
		return nil
	default:
		t.counters.dropped.Add(1)
		return errStreamFull
	}
}

// runStream connects and writes queued messages until the stream is idle for streamIdle or the
// connection breaks.
func (t *transport) runStream(addr string, s *stream) {
	lost := 0
	defer func() {
		t.mu.Lock()
		if t.outbound[addr] == s {
			delete(t.outbound, addr)
		}
		lost += len(s.queue)
		t.mu.Unlock()
		t.counters.lost.Add(uint64(lost))
	}()
	c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(t.ctx, "tcp", addr)
	if err != nil {
		return
	}
	t.counters.streamsOut.Add(1)
	defer func() { _ = c.Close() }()
	t.wg.Go(func() { // the peer never writes, so Read returns when either end closes
		_, _ = c.Read(make([]byte, 1))
		_ = c.Close()
	})
	head := []byte{streamByte}
	idle := time.NewTimer(streamIdle)
	defer idle.Stop()
	for {
		select {
		case b := <-s.queue:
			t.mu.Lock()
			s.bytes -= len(b)
			t.mu.Unlock()
			head = binary.BigEndian.AppendUint32(head, uint32(len(b)))
			_ = c.SetWriteDeadline(time.Now().Add(firstByte))
			if _, err := (&net.Buffers{head, b}).WriteTo(c); err != nil {
				lost++
				return
			}
			head = nil
			idle.Reset(streamIdle)
		case <-idle.C:
			t.mu.Lock()
			done := len(s.queue) == 0
			if done {
				delete(t.outbound, addr) // later messages open a new stream
			}
			t.mu.Unlock()
			if done {
				return
			}
			idle.Reset(streamIdle)
		case <-t.ctx.Done():
			return
		}
	}
}

// readStream reads messages until the connection ends, is idle for too long, or violates the
// protocol.
func (t *transport) readStream(c net.Conn) {
	var size [4]byte
	for {
		_ = c.SetReadDeadline(time.Now().Add(2 * streamIdle))
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		n := int64(binary.BigEndian.Uint32(size[:]))
		if n == 0 || n > maxFrame {
			t.counters.malformed.Add(1)
			return
		}
		// Each message has a separate deadline, so a slow peer cannot hold memory.
		_ = c.SetReadDeadline(time.Now().Add(2 * firstByte))
		if err := t.memory.Acquire(t.ctx, n); err != nil {
			return
		}
		var b bytes.Buffer // grows with received bytes, not with the announced length
		_, err := io.CopyN(&b, c, n)
		if err == nil {
			t.deliver(b.Bytes(), c.RemoteAddr(), time.Now())
		}
		t.memory.Release(n)
		if err != nil {
			t.counters.malformed.Add(1)
			return
		}
	}
}
