package dns

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

// nsdZones are the zones of TestSameAsNSD.
var nsdZones = []string{"mesh", "240.in-addr.arpa"}

// nsdHosts returns names of all kinds: with one and many addresses of one or both families, with
// ports, below other names, wildcards, and reverse names.
func nsdHosts() []table.Host {
	hosts := []table.Host{
		host("web.mesh", "240.0.0.1", "fd00::1"), host("v4.mesh", "240.0.0.2"), host("v6.mesh", "fd00::3"),
		{Name: "ports.mesh", Addrs: addrs("240.0.0.4", "fd00::4"),
			Ports: []table.Port{{Name: "http", Number: 80}, {Name: "grpc", Number: 81}, {Number: 9000}}},
		host("*.w.mesh", "240.0.0.5"), host("api.w.mesh", "240.0.0.6"), host("*.deep.w.mesh", "fd00::7"),
		host("a.b.c.d.mesh", "240.0.0.8"), manyHost("many.mesh", 64), manyHost("some.mesh", 20),
		host(strings.Repeat(strings.Repeat("l", 60)+".", 3)+"mesh", "240.0.0.9"),
	}
	for i := range 200 {
		name, a := fmt.Sprintf("svc%d.ns%d.mesh", i, i%7), netip.AddrFrom4([4]byte{240, 1, 0, byte(i)})
		hosts = append(hosts, table.Host{Name: name, Addrs: []netip.Addr{a}},
			table.Host{Name: table.ReverseName(a), PTR: name})
	}
	return hosts
}

// nsdZone returns the zone file with the names of some hosts.
func nsdZone(zone string, hosts []table.Host) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. 5 IN SOA ns.%[1]s. hostmaster.%[1]s. 1 3600 600 86400 5\n%[1]s. 30 IN NS ns.%[1]s.\n", zone)
	for _, h := range hosts {
		if !strings.HasSuffix(h.Name, "."+zone) {
			continue
		}
		for _, a := range h.Addrs {
			typ := "A"
			if a.Is6() {
				typ = "AAAA"
			}
			fmt.Fprintf(&b, "%s. 30 IN %s %s\n", h.Name, typ, a)
		}
		for _, p := range h.Ports {
			fmt.Fprintf(&b, "%s. 30 IN SRV 0 0 %d %[1]s.\n", h.Name, p.Number)
			if p.Name != "" {
				fmt.Fprintf(&b, "_%s._tcp.%s. 30 IN SRV 0 0 %d %[2]s.\n", p.Name, h.Name, p.Number)
			}
		}
		if h.PTR != "" {
			fmt.Fprintf(&b, "%s. 30 IN PTR %s.\n", h.Name, h.PTR)
		}
	}
	return b.String()
}

// startNSD starts NSD with the names of some hosts, and returns its address.
func startNSD(t *testing.T, hosts []table.Host) string {
	t.Helper()
	path, err := exec.LookPath("nsd")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/nsd"); err != nil {
			t.Skip("nsd is not installed: apt-get install nsd")
		}
	}
	dir := t.TempDir()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	at := free.Addr().String()
	fatal(t, free.Close())
	conf := fmt.Sprintf(`server:
  ip-address: %s
  username: ""
  zonesdir: %s
  database: ""
  pidfile: %[2]s/pid
  xfrdfile: %[2]s/xfrd
  zonelistfile: %[2]s/zones
  logfile: %[2]s/log
  xfrdir: %[2]s
  server-count: 1
  minimal-responses: yes
  ipv4-edns-size: 1232
  tcp-timeout: 120
  rrl-ratelimit: 0
remote-control:
  control-enable: no
`, strings.Replace(at, ":", "@", 1), dir)
	for _, zone := range nsdZones {
		fatal(t, os.WriteFile(filepath.Join(dir, zone), []byte(nsdZone(zone, hosts)), 0o600))
		conf += fmt.Sprintf("zone:\n  name: %q\n  zonefile: %q\n", zone, zone)
	}
	fatal(t, os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o600))
	cmd := exec.CommandContext(t.Context(), path, "-d", "-c", filepath.Join(dir, "conf"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	out := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = out, out
	fatal(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Cancel(); <-ended })
	c := mdns.Client{Timeout: 50 * time.Millisecond}
	for late := time.Now().Add(patience); ; {
		m := new(mdns.Msg).SetQuestion(nsdZones[0]+".", mdns.TypeSOA)
		if r, _, err := c.Exchange(m, at); err == nil && r.Rcode == 0 {
			return at
		}
		select {
		case err := <-ended:
			ended <- err
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("nsd has ended: %v\n%s%s", err, out, log)
		case <-time.After(10 * time.Millisecond): // connection refused is immediate
		}
		if time.Now().After(late) {
			t.Fatal("nsd does not respond")
		}
	}
}

// asker sends messages to a server over UDP and TCP.
type asker struct {
	t        *testing.T
	name     string
	udp, tcp net.Conn
	buf      [65537]byte
}

func newAsker(t *testing.T, name, at string) *asker {
	t.Helper()
	a := &asker{t: t, name: name}
	var err error
	a.udp, err = net.Dial("udp", at)
	fatal(t, err)
	a.tcp, err = net.Dial("tcp", at)
	fatal(t, err)
	for _, c := range []net.Conn{a.udp, a.tcp} {
		fatal(t, c.SetDeadline(time.Now().Add(patience)))
		t.Cleanup(func() { _ = c.Close() })
	}
	return a
}

func (a *asker) ask(tcp bool, wire []byte) *mdns.Msg {
	a.t.Helper()
	fatal := func(_ *testing.T, err error) {
		if err != nil {
			a.t.Fatalf("%s: %v; TCP %v, query % x", a.name, err, tcp, wire)
		}
	}
	var reply []byte
	if tcp {
		_, err := a.tcp.Write(framedForTest(wire))
		fatal(a.t, err)
		_, err = io.ReadFull(a.tcp, a.buf[:2])
		fatal(a.t, err)
		reply = a.buf[2 : 2+binary.BigEndian.Uint16(a.buf[:])]
		_, err = io.ReadFull(a.tcp, reply)
		fatal(a.t, err)
	} else {
		_, err := a.udp.Write(wire)
		fatal(a.t, err)
		n, err := a.udp.Read(a.buf[:])
		fatal(a.t, err)
		reply = a.buf[:n]
	}
	m := new(mdns.Msg)
	if err := m.Unpack(reply); err != nil {
		a.t.Fatalf("%v: % x", err, reply)
	}
	return m
}

// essence returns what must be equal in two replies: the header without RA, the question, the
// answer in any order, the SOA record of a negative answer, OPT, and TSIG. Records of a truncated
// reply may differ, because NSD omits all of them. NSD also omits the question of an error and the
// OPT record of NOTIMP, adds extended errors, and does not copy the DO bit of unknown EDNS versions
// (RFC 3225 section 3).
func essence(m *mdns.Msg) string {
	out := []string{fmt.Sprintf("%d %s opcode %d QR %v AA %v TC %v RD %v", m.Id, mdns.RcodeToString[m.Rcode], m.Opcode,
		m.Response, m.Authoritative, m.Truncated, m.RecursionDesired)}
	if m.Rcode == mdns.RcodeSuccess || m.Rcode == mdns.RcodeNameError {
		out = append(out, m.Question[0].String())
	}
	if !m.Truncated {
		out = append(out, slices.Sorted(slices.Values(texts(m.Answer)))...)
		if len(m.Answer) == 0 {
			out = append(out, strings.ToLower(strings.Join(texts(m.Ns), "\n")))
		}
	}
	if o := m.IsEdns0(); o != nil && m.Rcode != mdns.RcodeNotImplemented {
		out = append(out, fmt.Sprintf("OPT version %d DO %v", o.Version(), o.Do() && m.Rcode != mdns.RcodeBadVers))
	}
	if s := m.IsTsig(); s != nil {
		out = append(out, s.String())
	}
	return strings.Join(out, "\n")
}

// nsdQuery returns a random query.
func nsdQuery(t *testing.T, r *rand.Rand, hosts []table.Host) []byte {
	name := nsdName(r, hosts)
	types := []uint16{mdns.TypeA, mdns.TypeAAAA, mdns.TypeA, mdns.TypeAAAA, mdns.TypeSRV, mdns.TypePTR, mdns.TypeSOA,
		mdns.TypeNS, mdns.TypeHTTPS, mdns.TypeSVCB, mdns.TypeTXT, mdns.TypeMX, mdns.TypeCNAME, mdns.TypeNAPTR, mdns.TypeCAA,
		mdns.TypeDS, mdns.TypeDNSKEY, 65280}
	m := new(mdns.Msg).SetQuestion(name+".", types[r.IntN(len(types))])
	m.Id, m.RecursionDesired = uint16(r.Uint32()), r.IntN(2) == 0
	if r.IntN(2) == 0 {
		m.SetEdns0([]uint16{0, 512, 700, 1232, 4096}[r.IntN(5)], r.IntN(2) == 0)
		switch r.IntN(12) {
		case 0:
			m.IsEdns0().SetVersion(1)
		case 1:
			m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")})
		}
	}
	switch r.IntN(200) {
	case 0, 1, 2, 3:
		m.Question[0].Qclass = mdns.ClassHESIOD
	case 4: // NSD replies to at most 100 of these per second
		m.Opcode = []int{mdns.OpcodeStatus, mdns.OpcodeUpdate, 9}[r.IntN(3)]
	case 5, 6, 7, 8:
		if o := m.IsEdns0(); o != nil {
			o.SetVersion(0) // NSD mixes up the errors of both
		}
		m.SetTsig("key.example.", mdns.HmacSHA256, 300, time.Now().Unix())
		wire, _, err := mdns.TsigGenerate(m, "c2VjcmV0", "", false)
		fatal(t, err)
		return wire
	}
	return packed(t, m)
}

// nsdName returns a random name: a host's, one above or below it, one of the zone, or another.
func nsdName(r *rand.Rand, hosts []table.Host) string {
	name := hosts[r.IntN(len(hosts))].Name
	if r.IntN(2) == 0 {
		name = hosts[r.IntN(11)].Name // those of different kinds
	}
	name = strings.Replace(name, "*", []string{"x", "x.y", "*", "*.z"}[r.IntN(4)], 1)
	switch r.IntN(10) {
	case 0:
		_, name, _ = strings.Cut(name, ".")
	case 1:
		name = []string{"nope.", "x.y.", "*.", "_http._tcp.", "_tcp.", "_grpc._udp."}[r.IntN(6)] + name
	case 2:
		name = nsdZones[r.IntN(len(nsdZones))]
	case 3:
		name = []string{"www.example.org", "xmesh", "nope.mesh", "9.9.240.in-addr.arpa", "ns.mesh"}[r.IntN(5)]
	}
	b := []byte(name)
	for i, c := range b {
		if c >= 'a' && c <= 'z' && r.IntN(4) == 0 {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// TestSameAsNSD sends the same queries to the server and to NSD with the same names, and compares
// the replies.
func TestSameAsNSD(t *testing.T) {
	n := 8000
	if testing.Short() {
		n = 1000
	}
	hosts := nsdHosts()
	theirs := newAsker(t, "NSD", startNSD(t, hosts))
	srv := serve(t, ServerOptions{}, "127.0.0.1:0")
	srv.Swap(table.NewAnswers(mustTable(t, table.Options{Suffixes: nsdZones}, hosts...), nil))
	ours := newAsker(t, "our server", "127.0.0.1:"+srv.addr)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	differ := 0
	for range n {
		wire, tcp := nsdQuery(t, r, hosts), r.IntN(4) == 0
		want, got := essence(theirs.ask(tcp, wire)), essence(ours.ask(tcp, wire))
		if got == want {
			continue
		}
		if differ++; differ <= 20 {
			var q mdns.Msg
			_ = q.Unpack(wire)
			t.Errorf("seed %d, TCP %v, query %s\n-- our reply\n%s\n-- reply of NSD\n%s", seed, tcp, q.String(), got, want)
		}
	}
	if differ > 0 {
		t.Errorf("%d of %d replies differ", differ, n)
	}
}
