package dns

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

// running is a server on a free port.
type running struct {
	*Server
	addr string
}

func serve(t *testing.T, o ServerOptions, listen string, hosts ...table.Host) running {
	t.Helper()
	s := NewServer(o)
	s.Swap(table.NewAnswers(mustTable(t, table.Options{Suffixes: []string{"mesh"}}, hosts...), nil))
	udp, tcp, err := Listen(t.Context(), netip.MustParseAddrPort(listen), 2)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, c := range udp {
		wg.Add(1)
		go func() { defer wg.Done(); fatal(t, s.ServeUDP(ctx, c)) }()
	}
	wg.Add(1)
	go func() { defer wg.Done(); fatal(t, s.ServeTCP(ctx, tcp)) }()
	t.Cleanup(func() { cancel(); wg.Wait() })
	_, port, _ := net.SplitHostPort(tcp.Addr().String())
	return running{s, port}
}

func fatal(t testing.TB, err error) {
	if err != nil {
		t.Error(err)
	}
}

func (r running) exchange(t *testing.T, network, host string, m *mdns.Msg) *mdns.Msg {
	t.Helper()
	c := mdns.Client{Net: network, Timeout: time.Minute, UDPSize: 4096}
	out, _, err := c.Exchange(m, net.JoinHostPort(host, r.addr))
	if err != nil {
		t.Fatalf("%s %s: %v", network, host, err)
	}
	return out
}

var webHost = table.Host{Name: "web.mesh", Addrs: []netip.Addr{netip.MustParseAddr("240.0.0.1")}}

func testUDPAndTCP(t *testing.T) {
	many := table.Host{Name: "many.mesh"}
	for i := range table.MaxAddrs {
		many.Addrs = append(many.Addrs, netip.AddrFrom16([16]byte{0xfd, 15: byte(i)}))
	}
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"} {
		host := netip.MustParseAddrPort(listen).Addr()
		at := host.String()
		switch listen {
		case "0.0.0.0:0":
			at = "127.0.0.9" // the reply must come from this address, or the client would reject it
		case "[::]:0":
			at = "::1"
		}
		t.Run(listen, func(t *testing.T) {
			r := serve(t, ServerOptions{}, listen, webHost, many)
			for _, network := range []string{"udp", "tcp"} {
				if m := r.exchange(t, network, at, new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)); len(m.Answer) != 1 {
					t.Errorf("%s: %v", network, m)
				}
				if m := r.exchange(t, network, at,
					new(mdns.Msg).SetQuestion("example.org.", mdns.TypeA)); m.Rcode != mdns.RcodeRefused {
					t.Errorf("%s: %v, nobody is there to be asked", network, m)
				}
				m := r.exchange(t, network, at, new(mdns.Msg).SetQuestion("many.mesh.", mdns.TypeAAAA))
				if m.Truncated != (network == "udp") || network == "tcp" && len(m.Answer) != table.MaxAddrs {
					t.Errorf("%s: truncated %v, %d records", network, m.Truncated, len(m.Answer))
				}
			}
			want := []Count{{"local", "A", 0, 2}, {"local", "AAAA", 0, 2}, {"refused", "A", 5, 2}}
			if got := r.Counts(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("counts %v, want %v", got, want)
			}
		})
	}
}

// testSwapLosesNothing: queries are answered while tables are swapped.
func testSwapLosesNothing(t *testing.T) {
	r := serve(t, ServerOptions{}, "127.0.0.1:0", webHost)
	c, err := net.Dial("udp", "127.0.0.1:"+r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	buf := make([]byte, 600)
	for i := range 2000 {
		if i%20 == 0 {
			r.Swap(table.NewAnswers(mustTable(t, table.Options{Suffixes: []string{"mesh"}}, webHost,
				table.Host{Name: fmt.Sprintf("n%d.mesh", i)}), nil))
		}
		m := new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)
		m.Id = uint16(i)
		wire, _ := m.Pack()
		if _, err := c.Write(wire); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		var reply mdns.Msg
		if err := reply.Unpack(buf[:n]); err != nil || reply.Id != uint16(i) || len(reply.Answer) != 1 {
			t.Fatal(err, reply)
		}
	}
}

func TestPending(t *testing.T) {
	r := serve(t, ServerOptions{}, "127.0.0.1:0")
	r.Swap(table.PendingAnswers([]string{"mesh"}))
	if m := r.exchange(t, "udp", "127.0.0.1",
		new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)); m.Rcode != mdns.RcodeServerFailure {
		t.Errorf("%v: there is no table yet", m)
	}
}

// testPipelining: many queries in one segment, or in tiny segments, get all their replies.
func testPipelining(t *testing.T) {
	r := serve(t, ServerOptions{}, "127.0.0.1:0", webHost)
	const n = 3 * maxPipelined
	var all []byte
	for i := range n {
		m := new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)
		m.Id = uint16(i)
		wire, _ := m.Pack()
		all = append(all, framedForTest(wire)...)
	}
	for _, step := range []int{len(all), 7} {
		c, err := net.Dial("tcp", "127.0.0.1:"+r.addr)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for i := 0; i < len(all); i += step {
				if _, err := c.Write(all[i:min(i+step, len(all))]); err != nil {
					return
				}
			}
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		got, err := io.ReadAll(c) // the server closes the connection after the last reply
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for ; len(got) > 2; seen++ {
			size := int(binary.BigEndian.Uint16(got))
			if id := binary.BigEndian.Uint16(got[2:]); int(id) != seen {
				t.Fatalf("reply %d has the ID %d", seen, id)
			}
			got = got[2+size:]
		}
		if seen != n || len(got) > 0 {
			t.Errorf("%d replies and %d bytes, want %d", seen, len(got), n)
		}
		_ = c.Close()
	}
}

// testTCPLimits: clients that are idle, send invalid data, or do not read are disconnected.
// Connections beyond the limit are refused.
func testTCPLimits(t *testing.T) {
	r := serve(t, ServerOptions{Idle: 50 * time.Millisecond, MaxConns: 3}, "127.0.0.1:0", webHost)
	closed := func(send []byte) {
		t.Helper()
		c, err := net.Dial("tcp", "127.0.0.1:"+r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(send); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !bytes.Contains([]byte(err.Error()), []byte("reset")) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
	closed(nil)                                        // idle
	closed([]byte{0})                                  // half a length
	closed([]byte{0, 3, 1, 2, 3})                      // too short for a message
	closed(append([]byte{0, 12}, make([]byte, 11)...)) // half a message
	response := make([]byte, 14)
	response[1], response[4] = 12, 0x80
	closed(response)
}
