package dns

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

// benchHosts returns n hosts with names as in a mesh and one address each.
func benchHosts(n int) (hosts []table.Host) {
	for i := range n {
		hosts = append(hosts, table.Host{Name: fmt.Sprintf("svc-%05d.ns-%02d.svc.mesh.local", i, i%50),
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{240, 0, byte(i >> 8), byte(i)})}})
	}
	return hosts
}

var benchOptions = table.Options{Suffixes: []string{"mesh.local"}}

// BenchmarkAnswer measures an answer without the network, and the counting of one query.
func BenchmarkAnswer(b *testing.B) {
	a := table.NewAnswers(mustTable(b, benchOptions, benchHosts(10000)...), nil)
	out, c := make([]byte, 0, table.MaxUDP), new(counters)
	var q table.Query
	for _, of := range [][2]string{
		{"name", "svc-04711.ns-11.svc.mesh.local."}, {"no-name", "nope.ns-11.svc.mesh.local."},
		{"forwarded", "www.example.com."},
	} {
		m := packed(b, new(mdns.Msg).SetQuestion(of[1], mdns.TypeA))
		b.Run(of[0], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.Resolve(&q, m, netip.Addr{}, 0, false, out)
			}
		})
	}
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			c.add(fromTable, table.TypeA, table.RcodeSuccess)
		}
	})
}

// BenchmarkSwap sends 20,000 queries per second while 10,000 names are swapped 100 times per run,
// and reports lost queries.
func BenchmarkSwap(b *testing.B) {
	hosts := benchHosts(10000)
	server := NewServer(ServerOptions{})
	server.Swap(table.NewAnswers(mustTable(b, benchOptions, hosts...), nil))
	udp, tcp, err := Listen(b.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 1)
	if err != nil {
		b.Fatal(err)
	}
	_ = tcp.Close()
	_ = udp[0].SetReadBuffer(4 << 20)
	ended := make(chan error, 1)
	go func() { ended <- server.ServeUDP(b.Context(), udp[0]) }()
	defer func() { _ = udp[0].Close(); <-ended }()
	c, err := net.DialUDP("udp", nil, udp[0].LocalAddr().(*net.UDPAddr))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadBuffer(4 << 20)
	m := packed(b, new(mdns.Msg).SetQuestion("svc-04711.ns-11.svc.mesh.local.", mdns.TypeA))
	sent, lost := 0, 0
	for b.Loop() {
		over := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			defer close(over)
			for range 100 {
				server.Swap(table.NewAnswers(mustTable(b, benchOptions, hosts...), nil))
			}
		})
		asked := make(chan int, 1)
		wg.Go(func() {
			n := 0
			start := time.Now()
			for {
				select {
				case <-over:
					asked <- n
					return
				default:
				}
				for due := int(time.Since(start) / (50 * time.Microsecond)); n < due; n++ {
					_, _ = c.Write(m)
				}
				<-time.After(time.Millisecond)
			}
		})
		got, want := 0, -1
		buf := make([]byte, 600)
		for idle := 0; want < 0 || got < want && idle < 20; {
			if want < 0 {
				select {
				case want = <-asked:
				default:
				}
			}
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if _, err := c.Read(buf); err != nil {
				idle++
				continue
			}
			got, idle = got+1, 0
		}
		wg.Wait()
		sent, lost = sent+want, lost+want-got
	}
	b.ReportMetric(float64(lost)/float64(b.N), "lost/op")
	b.ReportMetric(float64(sent)/float64(b.N), "queries/op")
}
