package resolver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/resolver"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/dns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// node is a resolver that runs, with the result of the last reconciliation.
type node struct {
	*resolver.Resolver
	t    *testing.T
	last atomic.Pointer[status.Result]
	cfg  *config.Config
	logs *agenttest.Logs
	stop func() error
}

// newNode makes a resolver that asks upstream, with keys of the config that take precedence.
func newNode(t *testing.T, docs string, set ...string) *node {
	t.Helper()
	n := &node{t: t, logs: agenttest.NewLogs()}
	cfg, _, faults := config.Load(agenttest.Options(t.TempDir(),
		append([]string{"dns.listen=127.0.0.1:0", "dns.upstreams=127.0.0.1:1"}, set...)...))
	if faults != nil {
		t.Fatal(faults)
	}
	n.cfg = cfg
	agenttest.Do(t, os.MkdirAll(cfg.Paths.Logs, 0o750))
	n.reconcile(docs)
	r, err := resolver.New(resolver.Options{Config: cfg, Last: n.last.Load, Log: n.logs.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	n.Resolver = r
	return n
}

// reconcile is what the loop does: new meshes, with the given dataplanes on this node.
func (n *node) reconcile(docs string, local ...string) {
	n.t.Helper()
	if docs == "" {
		n.last.Store(&status.Result{})
		return
	}
	rs, faults := kinds.Registry().Decode("test", []byte(docs))
	if faults != nil {
		n.t.Fatal(faults)
	}
	set := resource.NewSet(rs)
	last := &status.Result{Meshes: map[string]*generate.Mesh{}, Proxies: map[generate.ProxyID]*generate.Proxy{}}
	for _, r := range set.Kind("Mesh") {
		m, err := generate.NewMesh(set, r.Name, mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
		if err != nil {
			n.t.Fatal(err)
		}
		last.Meshes[r.Name] = m
	}
	for _, l := range local {
		in, name, _ := strings.Cut(l, "/")
		last.Proxies[generate.ProxyID{Mesh: in, Name: name}] = nil
	}
	n.last.Store(last)
}

// run opens the sockets and answers until the test ends.
func (n *node) run() *node {
	n.t.Helper()
	n.Update()
	agenttest.Do(n.t, n.Open(n.t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	n.stop = sync.OnceValue(func() error { cancel(); return <-done })
	n.t.Cleanup(func() {
		if err := n.stop(); err != nil {
			n.t.Error(err)
		}
	})
	return n
}

// ask returns the answer to a question: the code, and the data of the records.
func (n *node) ask(network, name string, qtype uint16) string {
	n.t.Helper()
	return askAt(n.t, n.State().Listen[0], network, name, qtype)
}

func askAt(t *testing.T, at, network, name string, qtype uint16) string {
	t.Helper()
	got, err := answerAt(at, network, name, qtype, patience)
	if err != nil {
		t.Fatalf("%s %s: %v", network, name, err)
	}
	return got
}

func answerAt(at, network, name string, qtype uint16, wait time.Duration) (string, error) {
	m := new(miekg.Msg)
	m.SetQuestion(miekg.Fqdn(name), qtype)
	got, _, err := (&miekg.Client{Net: network, Timeout: wait}).Exchange(m, at)
	if err != nil {
		return "", err
	}
	out := []string{miekg.RcodeToString[got.Rcode]}
	for _, rr := range got.Answer {
		out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return strings.Join(out, " "), nil
}

// becomes asks until the answer is another one; tables are made beside the queries. As clients do,
// it asks again where no answer comes: a socket whose buffer is full takes no query.
func (n *node) becomes(name string, qtype uint16, want string) {
	n.t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	got := ""
	for got != want {
		select {
		case <-tick.C:
			answer, err := answerAt(n.State().Listen[0], "udp", name, qtype, time.Second)
			if err == nil {
				got = answer
			} else if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
				n.t.Fatalf("udp %s: %v", name, err)
			}
		case <-late:
			n.t.Fatalf("%s: %q, want %q", name, got, want)
		}
	}
}

func dataplane(in, name, address, service, more string) string {
	return fmt.Sprintf("---\ntype: Dataplane\nmesh: %s\nname: %s\nnetworking:\n  address: %s\n"+
		"  inbound: [{port: 80, tags: {kuma.io/service: %s}}]\n%s", in, name, address, service, more)
}

const oneMesh = "type: Mesh\nname: default\n"

// upstream answers every name with one address, and counts.
func upstream(t *testing.T) (addr string, asked *atomic.Int32) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked = new(atomic.Int32)
	srv := &miekg.Server{PacketConn: conn, Handler: miekg.HandlerFunc(func(w miekg.ResponseWriter, q *miekg.Msg) {
		asked.Add(1)
		m := new(miekg.Msg)
		m.SetReply(q)
		if q.Question[0].Qtype == miekg.TypeA {
			m.Answer = append(m.Answer, &miekg.A{Hdr: miekg.RR_Header{Name: q.Question[0].Name, Rrtype: miekg.TypeA,
				Class: miekg.ClassINET, Ttl: 60}, A: net.IPv4(198, 51, 100, 7)})
		}
		_ = w.WriteMsg(m)
	})}
	done := make(chan error, 1)
	go func() { done <- srv.ActivateAndServe() }()
	t.Cleanup(func() { _ = srv.Shutdown(); <-done })
	return conn.LocalAddr().String(), asked
}

// TestAnswers: names of the meshes over UDP and TCP, the rest from upstreams, owned suffixes from
// nobody else, and changes.
func TestAnswers(t *testing.T) {
	up, asked := upstream(t)
	n := newNode(t, oneMesh+dataplane("default", "a", "10.0.0.1", "api", ""), "dns.upstreams="+up).run()
	vip := n.State().Table.Find("api.mesh").VIPs[0].String()
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

func reverse(addr string) string {
	name, _ := miekg.ReverseAddr(addr)
	return strings.TrimSuffix(name, ".")
}

// gather returns the metrics of a collector by name and labels; of a histogram the count.
func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	agenttest.Do(t, reg.Register(c))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName()
			if labels != nil {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetCounter() != nil:
				out[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				out[name] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				out[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

// TestPending: while there is no mesh, names of the meshes fail, and others are asked of upstreams.
// The canary is answered: redirections to the resolver are in force without a mesh, too.
func TestPending(t *testing.T) {
	up, _ := upstream(t)
	n := newNode(t, "", "dns.upstreams="+up).run()
	if s := n.State(); s.State != api.DNSPending || !strings.Contains(s.Reason, "there is no mesh yet") ||
		!n.Check().Degraded || !n.Check().OK {
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

// TestLive: keys that take effect without a restart.
func TestLive(t *testing.T) {
	n := newNode(t, oneMesh+dataplane("default", "a", "10.0.0.1", "api", "")).run()
	n.becomes("x.corp", miekg.TypeA, "SERVFAIL") // no upstream answers
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

// TestPortInUse: an address that was set is needed, the default is not.
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
		if want := fmt.Sprintf(`dns.listen: %s cannot be opened: another process listens there; find it with "ss -lntup 'sport = :%s'" and stop it, or set dns.listen to another address, or to "" for no resolver`,
			at, port); err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", network, err, want)
		}
		n.cfg.DNS.Given = false
		if err := n.Open(t.Context()); err != nil {
			t.Errorf("%s: with the default: %v", network, err)
		}
		if err := n.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if s := n.State(); s.State != api.DNSOff || !strings.Contains(s.Reason, "another process listens there") ||
			!n.Check().Degraded || s.Table == nil || !strings.Contains(n.logs.String(), "there is no resolver") {
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

// TestBothFamilies: localhost is both loopback addresses, with one port.
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

// ownAddress is an address of this host that is no loopback address.
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

// TestViews: a workload that asks from the address of its dataplane is told what it reaches; others
// are told everything.
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

// TestFamilies: a proxy that takes IPv4 alone hides the IPv6 addresses of names from its workload,
// in every kind of answer.
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

// TestQueryLog: one query of so many, as JSON, with what upstreams took.
func TestQueryLog(t *testing.T) {
	up, _ := upstream(t)
	n := newNode(t, oneMesh+dataplane("default", "a", "10.0.0.1", "api", ""), "dns.upstreams="+up,
		"dns.queryLog.sample=2").run()
	const each = 40
	for range each {
		n.ask("tcp", "API.mesh", miekg.TypeA)
	}
	for range each {
		n.ask("tcp", "www.example.com", miekg.TypeA)
	}
	next := *n.cfg
	next.DNS.QueryLog.Sample = 0
	n.Configure(&next)
	n.ask("tcp", "API.mesh", miekg.TypeAAAA)
	agenttest.Do(t, n.stop())
	text, err := os.ReadFile(filepath.Join(n.cfg.Paths.Logs, "dns/queries.log"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		var e struct {
			Time                                        time.Time
			Client, Protocol, Name, Type, Source, Rcode string
			Answers                                     int
			Seconds                                     float64
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Source == "forwarded" != (e.Seconds > 0) || time.Since(e.Time) > time.Minute ||
			!strings.HasPrefix(e.Client, "127.0.0.1:") {
			t.Errorf("line %s", line)
		}
		got = append(got, fmt.Sprint(e.Protocol, e.Name, e.Type, e.Source, e.Rcode, e.Answers))
	}
	// One of two on average: which, the client cannot choose.
	logged := strings.Join(got, " ")
	local, others := strings.Count(logged, "tcpAPI.meshAlocalNOERROR1"), strings.Count(logged, "tcpwww.example.comA")
	if few, many := each/4, each*3/4; local < few || local > many || others < few || others > many ||
		local+others != len(got) {
		t.Errorf("logged: %d local, %d others: %s", local, others, logged)
	}
	if q := n.State().QueryLog; q.Written != uint64(len(got)) || q.Dropped != 0 || q.Problem != "" {
		t.Errorf("%+v", q)
	}
}

// TestQueryLogThatCannotBeWritten keeps no answer back, and is told.
func TestQueryLogThatCannotBeWritten(t *testing.T) {
	n := newNode(t, oneMesh, "dns.queryLog.sample=1")
	agenttest.Write(t, filepath.Join(n.cfg.Paths.Logs, "dns"), "not a directory")
	n.run()
	for range 3 {
		if got := n.ask("udp", names.Canary, miekg.TypeA); got != "NOERROR 192.0.2.53" {
			t.Fatal(got)
		}
	}
	agenttest.Await(t, "the log says so", n.logs.Ch, func() bool {
		return strings.Contains(n.logs.String(), "the query log cannot be opened")
	})
	if c := n.Check(); !c.Degraded || !strings.HasPrefix(c.Reason, "dns.queryLog: ") {
		t.Errorf("check: %+v", c)
	}
	agenttest.Do(t, n.stop())
	if q := n.State().QueryLog; q.Written != 0 || q.Dropped != 3 {
		t.Errorf("%+v", q)
	}
}

// TestResolvConf: a server that is the resolver itself is not asked, and it is said why.
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
	if want := file + ": nameserver 127.0.0.1 is this process itself and is not asked"; !strings.HasPrefix(s.Problem,
		want) || s.Ndots != 3 || strings.Join(s.Search, " ") != "corp example.com" {
		t.Errorf("problem %q, want %q; search %v, ndots %d", s.Problem, want, s.Search, s.Ndots)
	}
}

// given returns the sockets of an address as a socket unit has them, in which queries wait before
// there is an agent.
func given(t *testing.T) (book *sockets.Book, at string) {
	t.Helper()
	udp, tcp, err := dns.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	s := dns.Sockets{UDP: udp, TCP: []*net.TCPListener{tcp.(*net.TCPListener)}}
	files, err := s.Files()
	agenttest.Do(t, err, s.Close())
	named := make([]*os.File, len(files))
	for i, name := range []string{sockets.UnitUDP, sockets.UnitTCP} {
		fd, err := syscall.Dup(int(files[i].Fd()))
		agenttest.Do(t, err, files[i].Close())
		named[i] = os.NewFile(uintptr(fd), name)
	}
	return sockets.New(sockets.Options{Given: named}), tcp.Addr().String()
}

// TestQueriesThatWait: what was asked before the agent was there is answered by what it knows then:
// with no mesh yet names of the meshes fail, and the rest is forwarded.
func TestQueriesThatWait(t *testing.T) {
	for docs, want := range map[string]string{"": "SERVFAIL", oneMesh: "NXDOMAIN"} {
		up, _ := upstream(t)
		book, at := given(t)
		n := newNode(t, docs, "dns.upstreams="+up, "dns.listen="+at)
		n.Resolver = n.remade(book)
		asked := map[string]*miekg.Conn{}
		for _, name := range []string{"api.mesh.", "www.example.com."} {
			for _, network := range []string{"udp", "tcp"} {
				c, err := miekg.DialTimeout(network, at, patience)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				agenttest.Do(t, c.SetDeadline(time.Now().Add(patience)), c.WriteMsg(new(miekg.Msg).SetQuestion(name, miekg.TypeA)))
				asked[name+network] = c
			}
		}
		n.run()
		for what, c := range asked {
			m, err := c.ReadMsg()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got := miekg.RcodeToString[m.Rcode]; strings.HasPrefix(what, "api") && got != want ||
				!strings.HasPrefix(what, "api") && (got != "NOERROR" || len(m.Answer) != 1) {
				t.Errorf("with %q: %s: %s, %v", docs, what, got, m.Answer)
			}
		}
		if h := n.State().Holder; h != "a socket unit of systemd" {
			t.Errorf("held by %q", h)
		}
	}
}

// TestQueriesThatWaitElsewhere: likewise on sockets that others open, as in the namespaces of pods,
// whoever is faster.
func TestQueriesThatWaitElsewhere(t *testing.T) {
	up, _ := upstream(t)
	for range 20 {
		n := newNode(t, oneMesh, "dns.upstreams="+up)
		udp, tcp, err := dns.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 1)
		if err != nil {
			t.Fatal(err)
		}
		c, err := miekg.DialTimeout("udp", tcp.Addr().String(), patience)
		if err != nil {
			t.Fatal(err)
		}
		agenttest.Do(t, c.SetDeadline(time.Now().Add(patience)),
			c.WriteMsg(new(miekg.Msg).SetQuestion("www.example.com.", miekg.TypeA)))
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { agenttest.Do(t, n.ServeUDP(ctx, udp[0])) })
		wg.Go(func() { agenttest.Do(t, n.ServeTCP(ctx, tcp)) })
		runtime.Gosched()
		n.run()
		if m, err := c.ReadMsg(); err != nil || len(m.Answer) != 1 {
			t.Errorf("%v, %v", m, err)
		}
		cancel()
		wg.Wait()
		agenttest.Do(t, c.Close(), n.stop())
	}
}

// TestQueriesOfNobody: a socket that is full of queries whose clients are gone is emptied, and who
// asks after them is answered.
func TestQueriesOfNobody(t *testing.T) {
	up, asked := upstream(t)
	book, at := given(t)
	n := newNode(t, oneMesh+dataplane("default", "a", "10.0.0.1", "api", ""), "dns.upstreams="+up, "dns.listen="+at)
	n.Resolver = n.remade(book)
	const sent = 5000
	for i := range sent {
		name := "api.mesh."
		if i%2 == 0 {
			name = fmt.Sprintf("w%d.example.com.", i)
		}
		wire, err := new(miekg.Msg).SetQuestion(name, miekg.TypeA).Pack()
		agenttest.Do(t, err)
		c, err := net.Dial("udp", at)
		agenttest.Do(t, err)
		_, err = c.Write(wire)
		agenttest.Do(t, err, c.Close())
	}
	n.run()
	if got, _, _ := strings.Cut(n.ask("tcp", "api.mesh", miekg.TypeA), " "); got != "NOERROR" {
		t.Error(got)
	}
	n.becomes("api.mesh", miekg.TypeSRV, "NOERROR 0 0 80 api.mesh.")
	m := gather(t, n.Resolver)
	old := m[`nearside_dns_requests_total{result=local,type=A}`] - 1 +
		m[`nearside_dns_requests_total{result=forwarded,type=A}`]
	t.Logf("%v of %d queries were in the socket, %d were sent on", old, sent, asked.Load())
	if old < 1 || old >= sent || int(asked.Load()) > sent/2 {
		t.Errorf("%v queries, %d sent on", old, asked.Load())
	}
}

// remade is the resolver of the node with other sockets.
func (n *node) remade(book *sockets.Book) *resolver.Resolver {
	n.t.Helper()
	r, err := resolver.New(resolver.Options{Config: n.cfg, Last: n.last.Load, Sockets: book, Log: n.logs.Logger()})
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// TestExplained: what explanations say of names is what the resolver answers.
func TestExplained(t *testing.T) {
	up, _ := upstream(t)
	docs := oneMesh + "---\ntype: Mesh\nname: b\n" + dataplane("default", "a", "10.0.0.1", "api", "") +
		dataplane("b", "b", "10.0.0.2", "a_b", "") + "---\ntype: MeshService\nmesh: default\nname: db\n" +
		"spec: {selector: {dataplaneTags: {kuma.io/service: api}}, ports: [{port: 80, name: web}]}\n" +
		"---\ntype: HostnameGenerator\nname: g\nspec: {selector: {meshService: {matchLabels: {}}}, " +
		"template: '{{ .DisplayName }}.svc.mesh.local'}\n"
	n := newNode(t, docs, "dns.upstreams="+up).run()
	vip := n.State().Table.Find("api.mesh").VIPs[0].String()
	for _, name := range []string{"api.mesh", "API.Mesh", "b.mesh", "a.b.mesh", "a_b.mesh", "x.a.b.mesh", "x.api.mesh",
		"mesh", "db.svc.mesh.local", "svc.mesh.local", "mesh.local", "local",
		"nothing.svc.mesh.local", "_web._tcp.db.svc.mesh.local", "_tcp.db.svc.mesh.local", "_no._tcp.db.svc.mesh.local",
		"_web._udp.db.svc.mesh.local",
		names.Canary, "nearside.invalid", "x." + names.Canary, reverse(vip), "9.9.9.240.in-addr.arpa", "240.in-addr.arpa",
		"7.in-addr.arpa", "www.example.com"} {
		x, err := explaindns.Name(explaindns.DNSInput{Resolver: n.State(), Meshes: n.last.Load().Meshes},
			&explain.DNSQuestion{Name: name + "."})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := map[string]bool{}
		var data []string
		for _, qtype := range []uint16{miekg.TypeA, miekg.TypeAAAA, miekg.TypeSRV, miekg.TypePTR} {
			answer := strings.Fields(n.ask("udp", name, qtype))
			got[answer[0]] = true
			data = append(data, strings.Join(answer[1:], " "))
		}
		want := explaindns.DNSNone
		found := strings.TrimSpace(strings.ReplaceAll(strings.Join(data, " "), ". ", " "))
		switch {
		case strings.Contains(found, "198.51.100.7"):
			want = explaindns.DNSForwarded
		case found != "":
			want = explaindns.DNSResolves
		case got["NOERROR"]:
			want = explaindns.DNSEmpty
		}
		if x.Verdict != want || len(got) != 1 {
			t.Errorf("%s: explained as %s (%s), answered with %v %q", name, x.Verdict, x.Reason, got, found)
		}
		for _, r := range x.Steps[0].Records {
			if !strings.Contains(found, r.Data) {
				t.Errorf("%s: %s %s is explained, and answered is %q", name, r.Type, r.Data, found)
			}
		}
	}
}

// TestClientRate: queries of one address that are above the rate fail, and names of the meshes
// resolve as before.
func TestClientRate(t *testing.T) {
	list, err := net.InterfaceAddrs()
	agenttest.Do(t, err)
	own := ""
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			own = n.IP.String()
		}
	}
	if own == "" {
		t.Skip("this host has no address but that of the loopback interface, which has no bound")
	}
	up, _ := upstream(t)
	n := newNode(t, oneMesh+dataplane("default", "a", "10.0.0.1", "api", ""), "dns.listen="+own+":0", "dns.upstreams="+up,
		"dns.clientRate=1", "dns.cacheSize=0").run()
	failed := 0
	for range 20 {
		if n.ask("udp", "www.example.com", miekg.TypeA) == "SERVFAIL" {
			failed++
		}
	}
	if failed < 10 {
		t.Errorf("%d of 20 queries fail", failed)
	}
	if got := n.ask("udp", "api.mesh", miekg.TypeA); !strings.HasPrefix(got, "NOERROR") {
		t.Errorf("api.mesh: %s", got)
	}
}
