package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
	"github.com/nearside-mesh/nearside/dns"
	"github.com/nearside-mesh/nearside/dns/table"
)

// flood sends queries at a fixed rate from one socket and counts their answers.
type flood struct {
	t     *testing.T
	conn  *net.UDPConn
	names []floodName
	sent  int // queries; only send writes it
	stop  chan struct{}
	tasks sync.WaitGroup

	mu       sync.Mutex
	pending  map[uint16]int // numbers of queries, by ID
	at       map[int]time.Time
	answered int
	last     int // highest number of an answered query
	failed   int // with SERVFAIL
	wrong    map[string]int
}

// floodName is a queried name with the prefix of its right answers: a response code and addresses.
type floodName struct{ name, want string }

// startFlood sends queries to an address until end is called.
func startFlood(t *testing.T, from, to netip.AddrPort, rate int, names ...floodName) *flood {
	t.Helper()
	c, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
	agenttest.Do(t, err, c.SetReadBuffer(sockets.BufferSize))
	if raw, err := c.SyscallConn(); err == nil { // beyond the limit of the system, as the agent does
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, sockets.BufferSize)
		})
	}
	f := &flood{t: t, conn: c, names: names, stop: make(chan struct{}), pending: map[uint16]int{}, at: map[int]time.Time{},
		wrong: map[string]int{}}
	f.tasks.Go(func() { f.send(rate) })
	f.tasks.Go(f.receive)
	t.Cleanup(func() { _ = c.Close() })
	return f
}

// mostPending is the number of unanswered queries at which send pauses, for example because a busy
// machine starts the agent slowly: the sockets hold about 5,000, and lose more.
const mostPending = 4000

// send sends queries in groups every 5 ms.
func (f *flood) send(rate int) {
	const pause = 5 * time.Millisecond
	wires := make([][]byte, len(f.names))
	for i, n := range f.names {
		wires[i], _ = new(mdns.Msg).SetQuestion(mdns.Fqdn(n.name), mdns.TypeA).Pack()
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for began := time.Now(); ; {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		for due := int(time.Since(began).Seconds() * float64(rate)); f.sent < due; f.sent++ {
			if _, pending := f.counts(); pending >= mostPending {
				began = time.Now().Add(-time.Duration(float64(f.sent) / float64(rate) * float64(time.Second)))
				break
			}
			id := uint16(f.sent)
			wire := wires[f.sent%len(wires)]
			binary.BigEndian.PutUint16(wire, id)
			f.mu.Lock()
			f.pending[id] = f.sent
			f.at[f.sent] = time.Now()
			f.mu.Unlock()
			if _, err := f.conn.Write(wire); err != nil {
				f.t.Errorf("query %d: %v", f.sent, err)
			}
		}
	}
}

// receive counts answers until the socket is closed.
func (f *flood) receive() {
	buf := make([]byte, 4096)
	for {
		n, err := f.conn.Read(buf)
		if err != nil {
			return
		}
		var m mdns.Msg
		if err := m.Unpack(buf[:n]); err != nil {
			f.t.Errorf("a reply is invalid: %v", err)
			continue
		}
		f.mu.Lock()
		number, ok := f.pending[m.Id]
		if !ok {
			f.mu.Unlock()
			continue
		}
		delete(f.pending, m.Id)
		delete(f.at, number)
		f.answered++
		f.last = max(f.last, number)
		got := mdns.RcodeToString[m.Rcode]
		for _, rr := range m.Answer {
			if a, ok := rr.(*mdns.A); ok {
				got += " " + a.A.String()
			}
		}
		switch name := f.names[number%len(f.names)]; {
		case m.Rcode == mdns.RcodeServerFailure:
			f.failed++
		case !strings.HasPrefix(got, name.want):
			f.wrong[name.name+" is "+got]++
		}
		f.mu.Unlock()
	}
}

// counts returns the numbers of queries with and without an answer.
func (f *flood) counts() (answered, pending int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answered, len(f.pending)
}

// answers waits for a number of further answers.
func (f *flood) answers(more int) {
	f.t.Helper()
	before, _ := f.counts()
	agenttest.Eventually(f.t, "queries are answered", func() bool {
		now, _ := f.counts()
		return now >= before+more
	})
}

// end stops sending, waits for late answers, and returns the times of the lost queries by number.
func (f *flood) end() map[int]time.Time {
	f.t.Helper()
	close(f.stop)
	late := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for waits := true; waits; {
		_, pending := f.counts()
		select {
		case <-tick.C:
			waits = pending > 0
		case <-late:
			waits = false
		}
	}
	_ = f.conn.Close()
	f.tasks.Wait()
	return f.at
}

// hostAddress returns an IPv4 address of this host that is not a loopback address.
func hostAddress(t *testing.T) netip.Addr {
	t.Helper()
	list, err := net.InterfaceAddrs()
	agenttest.Do(t, err)
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	t.Skip("skipped: the host has no IPv4 address except those of the loopback interface")
	return netip.Addr{}
}

// outsideServer serves db.example.com with its real address until the test ends.
func outsideServer(t *testing.T) string {
	t.Helper()
	hosts, errs := table.New(table.Options{Suffixes: []string{"example.com"}, TTL: 60},
		[]table.Host{{Name: "db.example.com", Addrs: []netip.Addr{netip.MustParseAddr(realAddr)}}})
	agenttest.Do(t, errs...)
	s := dns.NewServer(dns.ServerOptions{})
	s.Swap(table.NewAnswers(hosts, nil))
	udp, tcp, err := dns.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 1)
	agenttest.Do(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = s.ServeUDP(ctx, udp[0]) })
	tasks.Go(func() { _ = s.ServeTCP(ctx, tcp) })
	t.Cleanup(func() { stop(); tasks.Wait() })
	return tcp.Addr().String()
}

// TestDNSOverKills kills the agent repeatedly while a workload with a real Envoy sends 2,000
// queries a second: for a pinned name, for a service that it does not reach, and for one that it
// reaches. No answer may differ from those of its view, and no query may be lost. On a busy
// machine, beside other tests, an agent may be killed between the read of a batch of queries and
// the replies; only these are excused.
func TestDNSOverKills(t *testing.T) {
	kills, rate := 4, 2000
	const batch = 32 // queries that one agent may have read
	excused := batch
	if n, err := strconv.Atoi(os.Getenv(restartsVariable)); err == nil {
		kills, excused = n, 0
	}
	path, own := envoytest.Find(t), hostAddress(t)
	dir := quickTemp(t)
	write(t, filepath.Join(dir, "resources", "mesh.yaml"), fmt.Sprintf(`
{type: Mesh, name: default, networking: {outbound: {passthrough: false}}}
---
type: Dataplane
mesh: default
name: web
networking:
  address: %s
  inbound: [{port: %d, tags: {kuma.io/service: web}}]
  transparentProxying: {redirectPortInbound: %d, redirectPortOutbound: %d, reachableServices: [api]}
---
type: Dataplane
mesh: default
name: api
networking: {address: 10.9.0.1, inbound: [{port: 80, tags: {kuma.io/service: api}}]}
---
type: Dataplane
mesh: default
name: secret
networking: {address: 10.9.0.2, inbound: [{port: 80, tags: {kuma.io/service: secret}}]}
---
type: MeshPassthrough
mesh: default
name: database
labels: {nearside.io/dns-pinned: "true"}
spec:
  targetRef: {kind: Mesh}
  default: {passthroughMode: Matched, appendMatch: [{type: Domain, value: db.example.com, port: 5432, protocol: tcp}]}
`, own, agenttest.FreePort(t), agenttest.FreePort(t),
		agenttest.FreePort(t)))
	at := netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(agenttest.FreePort(t)))
	set := []string{"dns.listen=" + at.String(), "dns.upstreams=" + outsideServer(t), "dns.reachableOnly=true"}
	d := start(t, dir, set...)
	t.Cleanup(func() { endHolders(dir) })
	envoytest.Start(t, path, "", func(admin string) ([]byte, error) {
		return bootstrap.Render(bootstrap.Options{Mesh: "default", Name: "web", XDSSocket: d.xds(), AdminSocket: admin})
	})
	back := func() {
		t.Helper()
		agenttest.Eventually(t, "the Envoy has its config", func() bool {
			p, err := d.api().Proxy(t.Context(), "default", "web")
			return err == nil && len(p.Clients) == 1 && p.Clients[0].InSync
		})
	}
	back()
	agenttest.Eventually(t, "the sockets are held", func() bool {
		return holderPID.MatchString(d.must("", "status"))
	})
	f := startFlood(t, netip.AddrPortFrom(own, 0), netip.AddrPortFrom(own, at.Port()), rate,
		floodName{"db.example.com", "NOERROR 24"}, floodName{"secret.mesh", "NXDOMAIN"}, floodName{"api.mesh", "NOERROR 24"})
	f.answers(rate / 10)
	var killed []span
	var last []int // answered before
	for i := range kills {
		f.mu.Lock()
		last = append(last, f.last)
		f.mu.Unlock()
		began := time.Now()
		d.end(syscall.SIGKILL)
		killed = append(killed, span{began: began, ended: time.Now()})
		d = start(t, dir, set...)
		f.answers(rate / 10)
		if i%2 == 0 { // otherwise the next kill may come before the Envoy is back
			back()
		}
	}
	lost := f.end()
	t.Logf("%d kills: %d queries, %d failed, %d lost", kills, f.sent, f.failed, len(lost))
	read := make([]int, len(killed))
	for number, at := range lost {
		// The agent answers in about the order of the queries, which may have waited for its start.
		i := slices.IndexFunc(killed, func(k span) bool { return at.Before(k.ended) })
		if i >= 0 && number+batch > last[i] && read[i] < excused {
			read[i]++
			continue
		}
		latest := 0
		for latest+1 < len(killed) && killed[latest+1].began.Before(at) {
			latest++
		}
		t.Errorf("query %d was lost that was sent %v after kill %d; answered before the kills: %v", number,
			at.Sub(killed[latest].began), latest, last)
	}
	if len(f.wrong) > 0 {
		t.Errorf("wrong answers are %v", f.wrong)
	}
}

// endHolders ends the holder of a directory.
func endHolders(dir string) {
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range list {
		line, _ := os.ReadFile(path)
		if words := strings.Split(string(line), "\x00"); len(words) > 1 && words[1] == "hold" &&
			strings.Contains(string(line), dir) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
	}
}
