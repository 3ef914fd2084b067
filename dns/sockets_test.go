package dns

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// start serves sockets until the returned function is called.
func (s Sockets) start(t *testing.T, server *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, c := range s.UDP {
		wg.Go(func() { fatal(t, server.ServeUDP(ctx, c)) })
	}
	for _, l := range s.TCP {
		wg.Go(func() { fatal(t, server.ServeTCP(ctx, l)) })
	}
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

// Row 66: queries wait in held sockets while no server runs, and the next server answers them,
// over UDP and TCP.
func testSocketsOutliveAServer(t *testing.T) {
	udp, tcp, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 3)
	if err != nil {
		t.Fatal(err)
	}
	first := Sockets{UDP: udp, TCP: []*net.TCPListener{tcp.(*net.TCPListener)}}
	held, err := first.Files()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, f := range held {
			fatal(t, f.Close())
		}
	}()
	at := tcp.Addr().String()
	server := func(addr string) *Server {
		s := NewServer(ServerOptions{})
		s.Swap(table.NewAnswers(mustTable(t, table.Options{Suffixes: []string{"mesh"}},
			table.Host{Name: "web.mesh", Addrs: addrs(addr)}), nil))
		return s
	}
	stop := first.start(t, server("240.0.0.1"))
	got, _, err := (&mdns.Client{Timeout: patience}).Exchange(new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA), at)
	if err != nil || firstA(got) != "240.0.0.1" {
		t.Fatal(got, err)
	}
	for round, addr := range []string{"240.0.0.2", "240.0.0.3"} {
		stop()
		const n = 100
		var clients [2 * n]net.Conn
		for i := range clients {
			network := "udp"
			if i >= n {
				network = "tcp"
			}
			m := new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)
			m.Id = uint16(i)
			wire := packed(t, m)
			if network == "tcp" {
				wire = framedForTest(wire)
			}
			c, err := net.Dial(network, at)
			if err != nil {
				t.Fatalf("round %d: nobody serves, but somebody holds the socket: %v", round, err)
			}
			if _, err := c.Write(wire); err != nil {
				t.Fatal(err)
			}
			clients[i] = c
		}
		next, err := FromFiles(held)
		if err != nil {
			t.Fatal(err)
		}
		if len(next.UDP) != 3 || len(next.TCP) != 1 {
			t.Fatalf("%d sockets for UDP and %d for TCP", len(next.UDP), len(next.TCP))
		}
		stop = next.start(t, server(addr))
		for i, c := range clients {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			buf := make([]byte, 600)
			k := 0
			if i >= n {
				if _, err := io.ReadFull(c, buf[:2]); err != nil {
					t.Fatal(err)
				}
				k, err = io.ReadFull(c, buf[:binary.BigEndian.Uint16(buf)])
			} else {
				k, err = c.Read(buf)
			}
			var m mdns.Msg
			if err != nil || m.Unpack(buf[:k]) != nil || m.Id != uint16(i) || firstA(&m) != addr {
				t.Fatalf("round %d, client %d: %v %v, want %s", round, i, err, &m, addr)
			}
			_ = c.Close()
		}
	}
}

// Errors for unsuitable files have the number of the file.
func TestFilesThatAreNotSockets(t *testing.T) {
	plain, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	file := func(c interface{ File() (*os.File, error) }, closers ...io.Closer) *os.File {
		t.Helper()
		f, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range closers {
			fatal(t, c.Close())
		}
		t.Cleanup(func() { fatal(t, f.Close()) })
		return f
	}
	good, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	connected, err := net.Dial("udp", good.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	bare := func(kind int) *os.File {
		fd, err := syscall.Socket(syscall.AF_INET, kind, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "bare")
		t.Cleanup(func() { fatal(t, f.Close()) })
		return f
	}
	fine := file(good, good)
	for want, f := range map[string]*os.File{
		"not a network socket": plain, "is connected to": file(connected.(*net.UDPConn), connected),
		"are not supported":   file(unix, unix),
		"it is not listening": bare(syscall.SOCK_STREAM), "not bound to a port": bare(syscall.SOCK_DGRAM),
	} {
		s, err := FromFiles([]*os.File{fine, f})
		if err == nil || !strings.HasPrefix(err.Error(), "file 1 (") || !strings.Contains(err.Error(), want) ||
			len(s.UDP) > 0 {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// A server stops although packets keep arriving: each reply triggers two more queries.
func TestServerStopsUnderAFlood(t *testing.T) {
	udp, tcp, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	_ = tcp.Close()
	c, err := net.Dial("udp", udp[0].LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := packed(t, new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA))
	var over atomic.Bool
	server := NewServer(ServerOptions{Sampled: func(Sampled) {
		for range 2 {
			if !over.Load() {
				_, _ = c.Write(m)
			}
		}
	}})
	server.Sample(1)
	for range 100 {
		_, _ = c.Write(m)
	}
	stop := Sockets{UDP: udp}.start(t, server)
	for late := time.Now().Add(patience); server.bySource()[fromNone] < 5000; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatal("the flood has ended")
		}
	}
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the server goes on")
		over.Store(true)
		<-ended
	}
}

// A server that stops answers the queries that it has read, and those in transit over
// connections. It does not touch the next server's sockets.
func TestServerShutdown(t *testing.T) {
	upstream, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	fwd, err := forward.New(
		forward.Options{Servers: []netip.AddrPort{netip.MustParseAddrPort(upstream.LocalAddr().String())}})
	if err != nil {
		t.Fatal(err)
	}
	forwarding, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { fatal(t, fwd.Run(forwarding)) })
	defer func() { end(); wg.Wait() }()
	<-fwd.Started()
	server := NewServer(ServerOptions{Forwarder: fwd})
	server.drain, server.grace = patience, patience
	server.Swap(table.NewAnswers(mustTable(t, table.Options{Suffixes: []string{"mesh"}},
		table.Host{Name: "web.mesh", Addrs: addrs("240.0.0.1")}), nil))
	udp, tcp, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	stop := Sockets{UDP: udp, TCP: []*net.TCPListener{tcp.(*net.TCPListener)}}.start(t, server)
	at := tcp.Addr().String()
	var clients []*mdns.Conn
	for _, network := range []string{"udp", "tcp"} {
		c, err := mdns.DialTimeout(network, at, patience)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		fatal(t, c.WriteMsg(new(mdns.Msg).SetQuestion(network+".example.org.", mdns.TypeA)))
		clients = append(clients, c)
	}
	var replies []func()
	for range clients {
		b, q := make([]byte, 600), new(mdns.Msg)
		n, from, err := upstream.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		fatal(t, q.Unpack(b[:n]))
		rr, err := mdns.NewRR(q.Question[0].Name + " 60 IN A 192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		m := new(mdns.Msg).SetReply(q)
		m.Answer = []mdns.RR{rr}
		replies = append(replies, func() {
			_, err := upstream.WriteTo(packed(t, m), from)
			fatal(t, err)
		})
	}
	ended := make(chan struct{})
	go func() { defer close(ended); stop() }()
	for { // the listener closes first
		c, err := net.Dial("tcp", at)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	fatal(t, clients[1].WriteMsg(new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)))
	if m, err := clients[1].ReadMsg(); err != nil || firstA(m) != "240.0.0.1" {
		t.Errorf("a query over a connection that was open: %v, %v", m, err)
	}
	for _, reply := range replies {
		reply()
	}
	for i, c := range clients {
		if m, err := c.ReadMsg(); err != nil || firstA(m) != "192.0.2.1" {
			t.Errorf("client %d, whose query was sent on: %v, %v", i, m, err)
		}
	}
	_ = clients[1].Close()
	<-ended
}
