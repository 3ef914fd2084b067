package table_test

import (
	"net/netip"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

// resolved returns the response code and the records of an answer, or nil if the query is
// forwarded.
func resolved(t *testing.T, a *table.Answers, name string, qtype uint16) []string {
	t.Helper()
	wire, err := new(mdns.Msg).SetQuestion(mdns.Fqdn(name), qtype).Pack()
	if err != nil {
		t.Fatal(err)
	}
	var q table.Query
	reply, v := a.Resolve(&q, wire, netip.Addr{}, 0, false, nil)
	if v == table.Forward {
		return nil
	}
	var m mdns.Msg
	if err := m.Unpack(reply); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	out := []string{mdns.RcodeToString[m.Rcode]}
	for _, rr := range m.Answer {
		out = append(out, rr.String())
	}
	if len(m.Answer) == 0 && len(m.Ns) != 1 && m.Rcode != mdns.RcodeServerFailure {
		t.Errorf("%s: a negative answer has %d records in its authority section, want the SOA", name, len(m.Ns))
	}
	return out
}

// TestLocal checks that local names are answered with and without a mesh, and that forwarded
// suffixes take precedence over shorter owned ones.
func TestLocal(t *testing.T) {
	o := table.Options{Local: true, Suffixes: []string{"mesh", "240.in-addr.arpa", "d.f.ip6.arpa"},
		Forwarded: []string{"1.10.in-addr.arpa", "168.192.in-addr.arpa", "corp.mesh", "d.f.ip6.arpa"}}
	known, faults := table.New(o, []table.Host{{Name: "web.mesh", Addrs: []netip.Addr{netip.MustParseAddr("240.0.0.1")}},
		{Name: "db.corp.mesh", Addrs: []netip.Addr{netip.MustParseAddr("240.0.0.2")}}})
	if faults != nil {
		t.Fatal(faults)
	}
	served := table.NewAnswers(known, nil)
	const no, fails, forwarded = "NXDOMAIN", "SERVFAIL", ""
	for _, c := range []struct {
		name          string
		qtype         uint16
		want, pending string
	}{
		{"localhost", mdns.TypeA, "localhost.	30	IN	A	127.0.0.1", "localhost.	30	IN	A	127.0.0.1"},
		{"www.Localhost", mdns.TypeAAAA, "www.Localhost.	30	IN	AAAA	::1", "www.Localhost.	30	IN	AAAA	::1"},
		{"localhost", mdns.TypeMX, "NOERROR", "NOERROR"},
		{"1.0.0.127.in-addr.arpa", mdns.TypePTR, "1.0.0.127.in-addr.arpa.	30	IN	PTR	localhost.",
			"1.0.0.127.in-addr.arpa.	30	IN	PTR	localhost."},
		{"2.0.0.127.in-addr.arpa", mdns.TypePTR, no, no},
		{"x.invalid", mdns.TypeA, no, no},
		{"expyuzz4wqqyqhjn.onion", mdns.TypeA, no, no},
		{"4.3.2.10.in-addr.arpa", mdns.TypePTR, no, no},
		{"4.3.1.10.in-addr.arpa", mdns.TypePTR, forwarded, forwarded},
		{"2.1.168.192.in-addr.arpa", mdns.TypePTR, forwarded, forwarded},
		{"1.1.16.172.in-addr.arpa", mdns.TypePTR, no, no},
		{"1.1.31.172.in-addr.arpa", mdns.TypePTR, no, no},
		{"1.1.32.172.in-addr.arpa", mdns.TypePTR, forwarded, forwarded},
		{"1.1.64.100.in-addr.arpa", mdns.TypePTR, no, no},
		{"1.1.128.100.in-addr.arpa", mdns.TypePTR, forwarded, forwarded},
		{"8.8.8.8.in-addr.arpa", mdns.TypePTR, forwarded, forwarded},
		{"1.b.e.f.ip6.arpa", mdns.TypePTR, no, no},
		{"1.c.e.f.ip6.arpa", mdns.TypePTR, forwarded, forwarded},
		{"1.d.f.ip6.arpa", mdns.TypePTR, no, fails}, // a range of virtual addresses
		{"1.0.0.240.in-addr.arpa", mdns.TypePTR, no, fails},
		{"x.mesh", mdns.TypeA, no, fails},
		{"x.corp.mesh", mdns.TypeA, forwarded, forwarded},
		{"corp.mesh", mdns.TypeSOA, forwarded, forwarded},
		{"db.corp.mesh", mdns.TypeA, "db.corp.mesh.	30	IN	A	240.0.0.2", "db.corp.mesh.	30	IN	A	240.0.0.2"},
		{"www.example.com", mdns.TypeA, forwarded, forwarded},
	} {
		for what, x := range map[string]struct {
			a    *table.Answers
			want string
		}{"served": {served, c.want}, "pending": {served.Pending(), c.pending}} {
			got := resolved(t, x.a, c.name, c.qtype)
			last := ""
			if len(got) > 0 {
				last = got[len(got)-1]
			}
			if last != x.want {
				t.Errorf("%s, %s type %d: %q, want %q", what, c.name, c.qtype, got, x.want)
			}
		}
	}
	for name, want := range map[string]string{"a.b.onion": "onion", "Localhost.": "localhost",
		"localhosts": "", "mesh": "",
		"9.168.192.in-addr.arpa": "168.192.in-addr.arpa", "xonion": ""} {
		if got, why := table.LocalSuffix(name); got != want || (why == "") != (want == "") {
			t.Errorf("the local suffix of %s is %q (%s), want %q", name, got, why, want)
		}
	}
}

// TestApex checks the SOA and NS records of owned suffixes (RFC 1034 section 4.2.1).
func TestApex(t *testing.T) {
	known, _ := table.New(table.Options{Suffixes: []string{"mesh", "mesh.local"}}, []table.Host{
		{Name: "mesh", Group: 7, Addrs: []netip.Addr{netip.MustParseAddr("240.0.0.1")}}, {Name: "web.mesh"}})
	all := table.NewAnswers(known, nil)
	const soa = "	5	IN	SOA	ns.mesh. hostmaster.mesh. 1 3600 600 86400 5"
	for _, c := range []struct {
		what  string
		a     *table.Answers
		name  string
		qtype uint16
		want  []string
	}{
		{"SOA", all, "mesh", mdns.TypeSOA, []string{"NOERROR", "mesh." + soa}},
		{"SOA in the client's case", all, "MESH", mdns.TypeSOA,
			[]string{"NOERROR", "MESH.	5	IN	SOA	ns.MESH. hostmaster.MESH. 1 3600 600 86400 5"}},
		{"SOA without hosts", all, "mesh.local", mdns.TypeSOA,
			[]string{"NOERROR", "mesh.local.	5	IN	SOA	ns.mesh.local. hostmaster.mesh.local. 1 3600 600 86400 5"}},
		{"NS", all, "mesh", mdns.TypeNS, []string{"NOERROR", "mesh.	30	IN	NS	ns.mesh."}},
		{"an address", all, "mesh", mdns.TypeA, []string{"NOERROR", "mesh.	30	IN	A	240.0.0.1"}},
		{"a hidden host", all.Others(table.NewView(nil)), "mesh", mdns.TypeA, []string{"NOERROR"}},
		{"SOA below", all, "web.mesh", mdns.TypeSOA, []string{"NOERROR"}},
		{"NS of no name", all, "none.mesh", mdns.TypeNS, []string{"NXDOMAIN"}},
		{"SOA before there is a mesh", all.Pending(), "mesh", mdns.TypeSOA, []string{"NOERROR", "mesh." + soa}},
		{"SOA elsewhere", all, "local", mdns.TypeSOA, nil},
	} {
		got := resolved(t, c.a, c.name, c.qtype)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %q, want %q", c.what, got[i], c.want[i])
			}
		}
	}
}
