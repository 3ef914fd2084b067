package traffictest_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// resolver serves the DNS names of the world in a namespace.
func (w *servers) resolver(ns *netns, at string) {
	w.t.Helper()
	var p net.PacketConn
	var err error
	ns.do(func() { p, err = net.ListenPacket("udp", at) })
	agenttest.Do(w.t, err)
	w.answer(p)
}

// answer responds to the DNS queries received on a socket.
func (w *servers) answer(p net.PacketConn) {
	w.hold(p)
	w.wg.Go(func() {
		b := make([]byte, 1500)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			if reply := w.reply(b[:n]); reply != nil {
				_, _ = p.WriteTo(reply, from)
			}
		}
	})
}

// moving is the prefix of names whose addresses change. Their records have a TTL of one second.
const moving = "moving."

// move replaces the addresses of a name.
func (w *servers) move(name string, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = nil
	for _, a := range addrs {
		w.names[name] = append(w.names[name], netip.MustParseAddr(a))
	}
}

// reply returns the response to a query with one question (RFC 1035, section 4), or nil if q is not
// a valid query.
func (w *servers) reply(q []byte) []byte {
	const header = 12
	end := header
	var labels []string
	for end < len(q) && q[end] != 0 {
		n := int(q[end])
		if end+1+n >= len(q) {
			return nil
		}
		labels = append(labels, string(q[end+1:end+1+n]))
		end += 1 + n
	}
	end += 5 // root label, type, and class
	if len(q) < end {
		return nil
	}
	name := strings.ToLower(strings.Join(labels, "."))
	w.mu.Lock()
	list := w.names[name]
	w.mu.Unlock()
	ttl := byte(60)
	if strings.HasPrefix(name, moving) {
		ttl = 1
	}
	out := append([]byte{}, q[:end]...)
	copy(out[2:header], []byte{0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	if list == nil {
		out[3] = 3 // NXDOMAIN
		return out
	}
	kind := binary.BigEndian.Uint16(q[end-4:])
	for _, a := range list {
		if kind == 1 && a.Is4() || kind == 28 && a.Is6() {
			b := a.AsSlice()
			out = append(out, 0xc0, header, 0, byte(kind), 0, 1, 0, 0, 0, ttl, 0, byte(len(b)))
			out = append(out, b...)
			out[7]++
		}
	}
	return out
}
