package dns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

// TestSwapsLoseNothing checks that no query is lost, and none gets a wrong answer, at 20,000
// queries a second over 100 tables.
func TestSwapsLoseNothing(t *testing.T) {
	const rate, swaps, perSwap, hosts = 20_000, 100, 200, 1000
	var s Sockets
	fatal(t, s.Complete(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 2))
	_, err := s.Grow(4 << 20)
	fatal(t, err)
	server := NewServer(ServerOptions{})
	list := make([]table.Host, hosts)
	for i := range list {
		list[i] = table.Host{Name: fmt.Sprintf("n%d.mesh", i), Addrs: []netip.Addr{netip.MustParseAddr("240.0.0.1")}}
	}
	swap := func() {
		server.Swap(table.NewAnswers(mustTable(t, table.Options{Suffixes: []string{"mesh"}}, list...), nil))
	}
	swap()
	s.start(t, server)
	c, err := net.DialUDP("udp4", nil, s.UDP[0].LocalAddr().(*net.UDPAddr))
	fatal(t, err)
	defer c.Close()
	_, err = (&Sockets{UDP: []*net.UDPConn{c}}).Grow(4 << 20)
	fatal(t, err)

	const all = swaps * perSwap
	answered := make([]bool, all)
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 512)
		for n := 0; n < all; {
			size, err := c.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			fatal(t, err)
			id := int(binary.BigEndian.Uint16(buf))
			switch {
			case size < 12 || id >= all || buf[3]&15 != 0 || binary.BigEndian.Uint16(buf[6:]) != 1:
				t.Errorf("a wrong answer: % x", buf[:size])
				return
			case !answered[id]:
				answered[id] = true
				n++
			}
		}
	})
	wire, err := new(mdns.Msg).SetQuestion("n7.mesh.", mdns.TypeA).Pack()
	fatal(t, err)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began, sent := time.Now(), 0
	for range swaps {
		swapped := make(chan struct{})
		go func() { defer close(swapped); swap() }()
		for end := sent + perSwap; sent < end; {
			<-tick.C
			for due := min(end, int(time.Since(began).Seconds()*rate)); sent < due; sent++ {
				binary.BigEndian.PutUint16(wire, uint16(sent))
				_, err := c.Write(wire)
				fatal(t, err)
			}
		}
		<-swapped
	}
	fatal(t, c.SetReadDeadline(time.Now().Add(patience)))
	wg.Wait()
	lost := 0
	for _, ok := range answered {
		if !ok {
			lost++
		}
	}
	t.Logf("%d queries in %v", sent, time.Since(began))
	if lost > 0 {
		t.Errorf("%d of %d queries are lost", lost, all)
	}
}
