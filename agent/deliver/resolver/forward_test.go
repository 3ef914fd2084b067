package resolver_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	miekg "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestForward: names of a domain go to its upstreams, a new config takes effect at once, and the
// status, check, and metrics show the upstreams of each domain.
func TestForward(t *testing.T) {
	var list []string
	for _, addr := range []string{"192.0.2.1", "192.0.2.2"} {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &miekg.Server{PacketConn: c, Handler: miekg.HandlerFunc(func(w miekg.ResponseWriter, q *miekg.Msg) {
			m := new(miekg.Msg).SetReply(q)
			m.Answer = []miekg.RR{&miekg.A{Hdr: miekg.RR_Header{Name: q.Question[0].Name, Rrtype: miekg.TypeA,
				Class: miekg.ClassINET, Ttl: 60}, A: net.ParseIP(addr)}}
			_ = w.WriteMsg(m)
		})}
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
		list = append(list, c.LocalAddr().String())
	}
	n := newNode(t, oneMesh+dataplane("default", "a", "10.0.0.1", "api", ""),
		"dns.forward=[{domains: [corp.example, lab.example, 1.0.10.in-addr.arpa], upstreams: ['"+list[0]+"']}]").run()
	n.becomes("www.corp.example", miekg.TypeA, "NOERROR 192.0.2.1")
	n.becomes("lab.example", miekg.TypeA, "NOERROR 192.0.2.1")
	n.becomes("www.example.org", miekg.TypeA, "SERVFAIL") // from dns.upstreams
	n.becomes("1.0.0.10.in-addr.arpa", miekg.TypeA, "NXDOMAIN")
	n.becomes("1.1.0.10.in-addr.arpa", miekg.TypeA, "NOERROR 192.0.2.1") // not local, because the config lists it
	s := n.State()
	i := slices.IndexFunc(s.Upstreams, func(u api.DNSUpstream) bool { return u.Address == list[0] })
	if i < 0 || strings.Join(s.Upstreams[i].Domains, " ") != "corp.example lab.example 1.0.10.in-addr.arpa" ||
		s.Upstreams[i].Queries < 2 || s.Upstreams[i].Protocol != "udp" {
		t.Errorf("%+v", s.Upstreams)
	}
	x, err := explaindns.Name(explaindns.DNSInput{Resolver: s, Meshes: n.last.Load().Meshes},
		&explain.DNSQuestion{Name: "www.Corp.example."})
	if err != nil || x.Steps[0].Domain != "corp.example" || len(x.Steps[0].Upstreams) != 1 ||
		x.Steps[0].Upstreams[0].Address != list[0] {
		t.Errorf("%v: the explanation is %+v", err, x)
	}
	if got := n.Line().Upstreams; len(got) != 2 {
		t.Errorf("the status has %+v", got)
	}
	if c := n.Check(); c.Degraded ||
		!strings.Contains(c.Reason, "other upstreams answer for 1.0.10.in-addr.arpa, corp.example, lab.example") {
		t.Errorf("%+v", c)
	}
	r := prometheus.NewRegistry()
	agenttest.Do(t, r.Register(n))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := false
	for _, f := range families {
		for _, m := range f.Metric {
			shown = shown || f.GetName() == "nearside_dns_upstream_up" && m.Label[0].GetValue() == "corp.example" &&
				m.Label[1].GetValue() == list[0] && m.Gauge.GetValue() == 1
		}
	}
	if !shown {
		t.Error("no metric of the upstream")
	}
	next := *n.cfg
	next.DNS.Forward = []config.DNSForward{{Domains: []string{"corp.example"}, Upstreams: []string{list[1]},
		Protocol: "udp"}}
	next.DNS.NegativeTTL = 7
	n.Configure(&next)
	n.becomes("www.corp.example", miekg.TypeA, "NOERROR 192.0.2.2")
	m := new(miekg.Msg).SetQuestion("nope.mesh.", miekg.TypeA)
	n.Update()
	if got, err := miekg.Exchange(m, n.State().Listen[0]); err != nil || len(got.Ns) != 1 || got.Ns[0].Header().Ttl != 7 {
		t.Errorf("%v: %v", err, got)
	}
}
