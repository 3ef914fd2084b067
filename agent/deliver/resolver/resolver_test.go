package resolver_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/deliver/resolver"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

const patience = 2 * time.Minute

// TestAnswers: names of the meshes over UDP and TCP, forwarded names, owned suffixes, and
// changes.
func TestAnswers(t *testing.T) {
	up, asked := upstream(t)
	n := newNode(t, oneMesh+dataplane("default", "a", "10.0.0.1", "api", ""), "dns.upstreams="+up).run()
	vip := n.State().Table.Find("api.mesh").Addrs[0].String()
	for _, network := range []string{"udp", "tcp"} {
		for name, want := range map[string]string{
			"api.mesh": "NOERROR " + vip, "nothing.mesh": "NXDOMAIN", "www.example.com": "NOERROR 198.51.100.7",
			names.Canary: "NOERROR " + names.CanaryAddr().String(), "9.0.0.240.in-addr.arpa": "NXDOMAIN",
		} {
			if got := n.ask(network, name, miekg.TypeA); got != want {
				t.Errorf("%s over %s: %q, want %q", name, network, got, want)
			}
		}
	}
	if got := n.ask("udp", "api.mesh", miekg.TypeAAAA); got != "NOERROR" {
		t.Errorf("AAAA: %q", got)
	}
	if got := n.ask("udp", reverse(vip), miekg.TypePTR); got != "NOERROR api.mesh." {
		t.Errorf("PTR: %q", got)
	}
	if got := n.ask("udp", "api.mesh", miekg.TypeSRV); got != "NOERROR 0 0 80 api.mesh." {
		t.Errorf("SRV: %q", got)
	}
	if asked.Load() != 1 {
		t.Errorf("the upstream was asked %d times; once for what is not of the meshes", asked.Load())
	}
	n.reconcile(oneMesh + dataplane("default", "a", "10.0.0.1", "api", "") +
		dataplane("default", "b", "10.0.0.2", "new", ""))
	n.Trigger()
	n.becomes("new.mesh", miekg.TypeAAAA, "NOERROR")
	n.reconcile(oneMesh + dataplane("default", "b", "10.0.0.2", "new", ""))
	n.Trigger()
	n.becomes("api.mesh", miekg.TypeA, "NXDOMAIN")
	n.becomes(reverse(vip), miekg.TypePTR, "NXDOMAIN")
	metrics := gather(t, n.Resolver)
	for name, want := range map[string]float64{`nearside_dns_tables_total{by=change}`: 2,
		`nearside_dns_tables_total{by=whole}`: 1, `nearside_dns_names`: 1,
		`nearside_dns_upstream_request_duration_seconds`: 1, `nearside_dns_requests_total{result=forwarded,type=A}`: 1,
		`nearside_dns_requests_total{result=cache,type=A}`: 1} {
		if metrics[name] != want {
			t.Errorf("%s is %v, want %v", name, metrics[name], want)
		}
	}
	if err := n.stop(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", n.State().Listen[0]); err == nil {
		t.Error("the socket is open after the end")
	}
}

// TestPending: without a mesh, names of the meshes fail, and other names are forwarded. The
// canary resolves, because redirections are also active without a mesh.
func TestPending(t *testing.T) {
	up, _ := upstream(t)
	n := newNode(t, "", "dns.upstreams="+up).run()
	if s := n.State(); s.State != api.DNSPending || !strings.Contains(s.Reason, "there is no mesh yet") ||
		n.Check().Degraded || !n.Check().OK {
		t.Errorf("state %q: %s; check %+v", s.State, s.Reason, n.Check())
	}
	for name, want := range map[string]string{
		"api.mesh":               "SERVFAIL",
		"1.0.0.240.in-addr.arpa": "SERVFAIL",
		names.Canary:             "NOERROR " + names.CanaryAddr().String(),
		"www.example.com":        "NOERROR 198.51.100.7",
	} {
		if got := n.ask("udp", name, miekg.TypeA); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	n.reconcile(oneMesh)
	n.Trigger()
	n.becomes("api.mesh", miekg.TypeA, "NXDOMAIN")
	n.reconcile("")
	n.Trigger()
	n.becomes("api.mesh", miekg.TypeA, "SERVFAIL")
}

// TestLive: live keys take effect without a restart.
func TestLive(t *testing.T) {
	n := newNode(t, oneMesh+dataplane("default", "a", "10.0.0.1", "api", "")).run()
	n.becomes("x.corp", miekg.TypeA, "SERVFAIL") // no upstream responds
	next := *n.cfg
	next.DNS.Suffixes, next.DNS.TTL = []string{"mesh", "corp"}, 77
	n.Configure(&next)
	n.becomes("x.corp", miekg.TypeA, "NXDOMAIN")
	m := new(miekg.Msg)
	m.SetQuestion("api.mesh.", miekg.TypeA)
	got, err := miekg.Exchange(m, n.State().Listen[0])
	if err != nil || len(got.Answer) != 1 || got.Answer[0].Header().Ttl != 77 {
		t.Errorf("%v: %v", err, got)
	}
}

// TestPortInUse: a configured address is required, the default address is not.
func TestPortInUse(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		var at string
		if network == "udp" {
			c, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			at = c.LocalAddr().String()
		} else {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			at = l.Addr().String()
		}
		n := newNode(t, oneMesh, "dns.listen="+at)
		n.Update()
		err := n.Open(t.Context())
		port := at[strings.LastIndexByte(at, ':')+1:]
		if want := fmt.Sprintf(`dns.listen: %s cannot be opened: another process listens on it; find it with "ss -lntup 'sport = :%s'" and stop it, or set dns.listen to another address, or to "" to disable the resolver`,
			at, port); err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", network, err, want)
		}
		n.cfg.DNS.Given = false
		if err := n.Open(t.Context()); err != nil {
			t.Errorf("%s: with the default: %v", network, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := n.Run(ended); err != nil {
			t.Error(err)
		}
		if s := n.State(); s.State != api.DNSOff || !strings.Contains(s.Reason, "another process listens on it") ||
			!n.Check().Degraded || s.Table == nil || !strings.Contains(n.logs.String(), "the resolver is off") {
			t.Errorf("%s: state %q: %s\n%s", network, s.State, s.Reason, n.logs)
		}
	}
	off := newNode(t, oneMesh, "dns.listen=")
	off.Update()
	agenttest.Do(t, off.Open(t.Context()), off.Run(t.Context()))
	if c := off.Check(); !c.OK || c.Degraded || off.State().State != api.DNSOff {
		t.Errorf("without a resolver: %+v", c)
	}
}

// TestAddressIsFreed: a default address that another process had is opened when it is free.
func TestAddressIsFreed(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		var other io.Closer
		at := ""
		if network == "udp" {
			c, err := net.ListenPacket("udp", "127.0.0.1:0")
			agenttest.Do(t, err)
			other, at = c, c.LocalAddr().String()
		} else {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			agenttest.Do(t, err)
			other, at = l, l.Addr().String()
		}
		n := newNode(t, oneMesh, "dns.listen="+at)
		n.cfg.DNS.Given = false
		n.run()
		if s := n.State(); s.State != api.DNSOff || !n.Serves() ||
			!strings.HasSuffix(s.Reason, "; the agent tries again every second") {
			t.Errorf("%s: state %s: %s", network, s.State, s.Reason)
		}
		agenttest.Do(t, other.Close())
		agenttest.Eventually(t, "the resolver listens", func() bool { return n.State().State == api.DNSServing })
		for _, ask := range []string{"udp", "tcp"} {
			if got := n.ask(ask, names.Canary, miekg.TypeA); got != "NOERROR 192.0.2.53" {
				t.Errorf("%s was in use: over %s: %q", network, ask, got)
			}
		}
		if c := n.Check(); c.Degraded {
			t.Errorf("%s: %+v", network, c)
		}
	}
}

// TestBothFamilies: localhost means both loopback addresses with one port.
func TestBothFamilies(t *testing.T) {
	n := newNode(t, oneMesh, "dns.listen=localhost:0").run()
	listen := n.State().Listen
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("the host has no IPv6: %v", err)
	} else {
		l.Close()
	}
	if len(listen) != 2 || netip.MustParseAddrPort(listen[0]).Port() != netip.MustParseAddrPort(listen[1]).Port() {
		t.Fatalf("it listens on %v", listen)
	}
	for _, at := range listen {
		for _, network := range []string{"udp", "tcp"} {
			if got := askAt(t, at, network, names.Canary, miekg.TypeA); got != "NOERROR 192.0.2.53" {
				t.Errorf("%s over %s: %q", at, network, got)
			}
		}
	}
}

// ownAddress returns an address of this host that is not a loopback address.
func ownAddress(t *testing.T) netip.Addr {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	t.Skip("the host has no IPv4 address but those of the loopback interface")
	return netip.Addr{}
}

// TestViews: a workload with its dataplane's address sees what the dataplane can reach. Other
// clients see everything.
func TestViews(t *testing.T) {
	own := ownAddress(t)
	docs := oneMesh + dataplane("default", "a", own.String(), "api", "  transparentProxying: {redirectPortInbound: "+
		"15006, redirectPortOutbound: 15001, reachableServices: [db]}\n") + dataplane("default", "b", "10.0.0.2", "db", "")
	n := newNode(t, docs, "dns.listen=0.0.0.0:0", "dns.reachableOnly=true")
	n.reconcile(docs, "default/a")
	n.run()
	port := netip.MustParseAddrPort(n.State().Listen[0]).Port()
	for at, want := range map[netip.Addr]string{own: "NXDOMAIN", netip.MustParseAddr("127.0.0.1"): "NOERROR"} {
		server := netip.AddrPortFrom(at, port).String()
		for _, network := range []string{"udp", "tcp"} {
			if got, _, _ := strings.Cut(askAt(t, server, network, "api.mesh", miekg.TypeA), " "); got != want {
				t.Errorf("from %s over %s: %s, want %s", at, network, got, want)
			}
			if got, _, _ := strings.Cut(askAt(t, server, network, "db.mesh", miekg.TypeA), " "); got != "NOERROR" {
				t.Errorf("from %s over %s, a name that it reaches: %s", at, network, got)
			}
		}
	}
	if v := n.State().Views; len(v) != 1 || v[0].Address != own || v[0].All || v[0].Dataplanes[0] != "default/a" {
		t.Errorf("views: %+v", v)
	}
}

// TestFamilies: a proxy that only supports IPv4 hides the IPv6 addresses of names from its
// workload, in all kinds of answers.
func TestFamilies(t *testing.T) {
	own := ownAddress(t)
	tp := "  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, ipFamilyMode: %s}\n"
	docs := oneMesh + dataplane("default", "a", own.String(), "api", fmt.Sprintf(tp, "IPv4")) +
		dataplane("default", "b", "10.0.0.2", "db", fmt.Sprintf(tp, "IPv6"))
	n := newNode(t, docs, "dns.listen=0.0.0.0:0")
	n.reconcile(docs, "default/a")
	n.run()
	port := netip.MustParseAddrPort(n.State().Listen[0]).Port()
	for at, families := range map[netip.Addr][]uint16{
		own:                              {miekg.TypeA},
		netip.MustParseAddr("127.0.0.1"): {miekg.TypeA, miekg.TypeAAAA},
	} {
		for _, qtype := range []uint16{miekg.TypeA, miekg.TypeAAAA, miekg.TypeSRV, miekg.TypeANY} {
			m := new(miekg.Msg)
			m.SetQuestion("db.mesh.", qtype)
			got, err := miekg.Exchange(m, netip.AddrPortFrom(at, port).String())
			if err != nil {
				t.Fatal(err)
			}
			for _, rr := range append(got.Answer, got.Extra...) {
				if x := rr.Header().Rrtype; x != miekg.TypeSRV && !slices.Contains(families, x) {
					t.Errorf("%s asks for %s, and is told %v", at, miekg.TypeToString[qtype], rr)
				}
			}
			if want := slices.Contains(families, qtype) || qtype == miekg.TypeSRV; (len(got.Answer) > 0) != want &&
				qtype != miekg.TypeANY || got.Rcode != miekg.RcodeSuccess || len(got.Answer) == 0 && len(got.Ns) != 1 {
				t.Errorf("%s asks for %s, and is told %v", at, miekg.TypeToString[qtype], got)
			}
		}
	}
}

// TestResolvConf: a name server that is the resolver itself is ignored and reported.
func TestResolvConf(t *testing.T) {
	n := newNode(t, oneMesh)
	dir := t.TempDir()
	file := filepath.Join(dir, "resolv.conf")
	agenttest.Write(t, file, "nameserver 127.0.0.1\nsearch corp example.com\noptions ndots:3\n")
	cfg := *n.cfg
	cfg.DNS.Upstreams, cfg.DNS.Listen = nil, "127.0.0.1:53"
	r, err := resolver.New(resolver.Options{Config: &cfg, Last: n.last.Load, ResolvConf: file, Log: n.logs.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	s := r.State()
	if want := file + ": nameserver 127.0.0.1 is ignored: it is an address of this process"; !strings.HasPrefix(s.Problem,
		want) || s.Ndots != 3 || strings.Join(s.Search, " ") != "corp example.com" {
		t.Errorf("problem %q, want %q; search %v, ndots %d", s.Problem, want, s.Search, s.Ndots)
	}
}
