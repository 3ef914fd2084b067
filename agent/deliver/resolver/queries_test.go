package resolver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/dns"
)

// TestQueryLog: a sample of the queries is logged as JSON, with the latency of upstreams.
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
	// Half of the queries are logged on average. Clients cannot predict which.
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

// TestQueryLogThatCannotBeWritten: replies are not delayed, and the problem is reported.
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
		return strings.Contains(n.logs.String(), "cannot open the query log")
	})
	if c := n.Check(); !c.Degraded || !strings.HasPrefix(c.Reason, "dns.queryLog: ") {
		t.Errorf("check: %+v", c)
	}
	agenttest.Do(t, n.stop())
	if q := n.State().QueryLog; q.Written != 0 || q.Dropped != 3 {
		t.Errorf("%+v", q)
	}
}

// TestQueriesThatWait: queries that arrived before the agent started are answered with the
// current data. Without a mesh, names of the meshes fail, and other queries are forwarded.
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

// TestQueriesThatWaitElsewhere: the same on sockets that other components open, as in the
// namespaces of pods, in any order of startup.
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
		wg.Go(func() { agenttest.Do(t, n.ServeUDPFrom(ctx, udp[0], nil)) })
		wg.Go(func() { agenttest.Do(t, n.ServeTCPFrom(ctx, tcp, nil)) })
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

// TestQueriesOfNobody: a socket full of queries from clients that no longer exist is emptied, and
// later clients get answers.
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

// TestExplained: explanations of names match the resolver's answers.
func TestExplained(t *testing.T) {
	up, _ := upstream(t)
	docs := oneMesh + "---\ntype: Mesh\nname: b\n" + dataplane("default", "a", "10.0.0.1", "api", "") +
		dataplane("b", "b", "10.0.0.2", "a_b", "") + "---\ntype: MeshService\nmesh: default\nname: db\n" +
		"spec: {selector: {dataplaneTags: {kuma.io/service: api}}, ports: [{port: 80, name: web}]}\n" +
		"---\ntype: HostnameGenerator\nname: g\nspec: {selector: {meshService: {matchLabels: {}}}, " +
		"template: '{{ .DisplayName }}.svc.mesh.local'}\n"
	n := newNode(t, docs, "dns.upstreams="+up).run()
	vip := n.State().Table.Find("api.mesh").Addrs[0].String()
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

// TestClientRate: queries of one address beyond the rate fail. Names of the meshes still resolve.
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
