package table

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func mustTable(t testing.TB, o Options, hosts ...Host) *Table {
	t.Helper()
	table, errs := New(o, hosts)
	for _, err := range errs {
		t.Fatal(err)
	}
	return table
}

// ask sends a query through a table, and returns the parsed reply.
func ask(t testing.TB, a *Answers, tcp bool, change func(*mdns.Msg), name string, qtype uint16) (*mdns.Msg, verdict) {
	t.Helper()
	m := new(mdns.Msg).SetQuestion(name, qtype)
	if change != nil {
		change(m)
	}
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var q Query
	out, v := a.Resolve(&q, wire, netip.MustParseAddr("10.0.0.1"), 0, tcp, nil)
	if v == Forward || v == Dropped {
		return nil, v
	}
	r := new(mdns.Msg)
	if err := r.Unpack(out); err != nil {
		t.Fatalf("the reply to %s cannot be read: %v", name, err)
	}
	if r.Id != m.Id || !r.Response || len(r.Question) > 0 && r.Question[0] != m.Question[0] {
		t.Fatalf("the reply has ID %d and question %v, asked were %d and %v", r.Id, r.Question, m.Id, m.Question)
	}
	return r, v
}

func texts(rrs []mdns.RR) (out []string) {
	for _, rr := range rrs {
		if rr.Header().Rrtype != mdns.TypeOPT {
			out = append(out, strings.Join(strings.Fields(rr.String()), " "))
		}
	}
	return out
}

func TestAnswers(t *testing.T) {
	table := mustTable(t, Options{Suffixes: []string{"mesh", "240.in-addr.arpa"}},
		Host{Name: "web.mesh", Addrs: addrs("240.0.0.1"), Ports: []Port{{"http", 80}, {"", 9000}}},
		Host{Name: "both.mesh", Addrs: addrs("240.0.0.2", "fd00::2")},
		Host{Name: "api.svc.mesh", Addrs: addrs("240.0.0.3")},
		Host{Name: "*.svc.mesh", Addrs: addrs("240.0.0.4")},
		Host{Name: "*.deep.svc.mesh", Addrs: addrs("240.0.0.5")},
		Host{Name: "none.mesh"},
		Host{Name: "*.example.com", Addrs: addrs("240.0.0.6")},
		Host{Name: "api.example.com", Addrs: addrs("240.0.0.7")},
		Host{Name: "1.0.0.240.in-addr.arpa", PTR: "web.mesh"},
	)
	a := NewAnswers(table, nil)
	soa := func(zone string) string {
		return fmt.Sprintf("%s 5 IN SOA ns.%s hostmaster.%s 1 3600 600 86400 5", zone, zone, zone)
	}
	for _, tc := range []struct {
		what, name, qtype string
		rcode             int
		want              string // records of all sections, joined by "; "
	}{
		{"an address", "web.mesh.", "A", 0, "web.mesh. 30 IN A 240.0.0.1"},
		{"another family is NODATA", "web.mesh.", "AAAA", 0, soa("mesh.")},
		{"both families", "both.mesh.", "AAAA", 0, "both.mesh. 30 IN AAAA fd00::2"},
		{"case is the client's", "wEb.MeSh.", "A", 0, "wEb.MeSh. 30 IN A 240.0.0.1"},
		{"HTTPS is NODATA", "web.mesh.", "HTTPS", 0, soa("mesh.")},
		{"SVCB is NODATA", "web.mesh.", "SVCB", 0, soa("mesh.")},
		{"MX is NODATA", "web.mesh.", "MX", 0, soa("mesh.")},
		{"TXT is NODATA", "web.mesh.", "TXT", 0, soa("mesh.")},
		{"a type nobody knows is NODATA", "web.mesh.", "TYPE65280", 0, soa("mesh.")},
		{"ANY is one set", "both.mesh.", "ANY", 0, "both.mesh. 30 IN A 240.0.0.2"},
		{"a name below a suffix that is not there", "nope.mesh.", "A", 3, soa("mesh.")},
		{"far below", "a.b.c.nope.mesh.", "A", 3, soa("mesh.")},
		{"the suffix", "mesh.", "A", 0, soa("mesh.")},
		{"a name that only lies above others", "svc.mesh.", "A", 0, soa("mesh.")},
		{"a host without addresses", "none.mesh.", "A", 0, soa("mesh.")},
		{"a wildcard", "x.svc.mesh.", "A", 0, "x.svc.mesh. 30 IN A 240.0.0.4"},
		{"a wildcard, several labels", "x.y.svc.mesh.", "A", 0, "x.y.svc.mesh. 30 IN A 240.0.0.4"},
		{"the exact name before the wildcard", "api.svc.mesh.", "A", 0, "api.svc.mesh. 30 IN A 240.0.0.3"},
		{"the closest encloser has no wildcard", "x.api.svc.mesh.", "A", 3, soa("mesh.")},
		{"the longer wildcard", "x.deep.svc.mesh.", "A", 0, "x.deep.svc.mesh. 30 IN A 240.0.0.5"},
		{"a wildcard has no other type", "x.svc.mesh.", "AAAA", 0, soa("mesh.")},
		{"not the parent of the wildcard", "deep.svc.mesh.", "A", 0, soa("mesh.")},
		{"a wildcard elsewhere", "x.example.com.", "A", 0, "x.example.com. 30 IN A 240.0.0.6"},
		{"a name elsewhere", "api.example.com.", "A", 0, "api.example.com. 30 IN A 240.0.0.7"},
		{"a name elsewhere, other family", "api.example.com.", "AAAA", 0, soa("api.example.com.")},
		{"below a name elsewhere, a wildcard", "x.api.example.com.", "A", 0, "x.api.example.com. 30 IN A 240.0.0.6"},
		{"SRV of a host", "web.mesh.", "SRV", 0,
			"web.mesh. 30 IN SRV 0 0 80 web.mesh.; web.mesh. 30 IN SRV 0 0 9000 web.mesh.; web.mesh. 30 IN A 240.0.0.1"},
		{"SRV of a named port", "_HTTP._tcp.web.mesh.", "SRV", 0,
			"_HTTP._tcp.web.mesh. 30 IN SRV 0 0 80 web.mesh.; web.mesh. 30 IN A 240.0.0.1"},
		{"a named port has no address", "_http._tcp.web.mesh.", "A", 0, soa("mesh.")},
		{"between a port and its host", "_tcp.web.mesh.", "A", 0, soa("mesh.")},
		{"a port that is not there", "_grpc._tcp.web.mesh.", "SRV", 3, soa("mesh.")},
		{"a reverse name", "1.0.0.240.in-addr.arpa.", "PTR", 0, "1.0.0.240.in-addr.arpa. 30 IN PTR web.mesh."},
		{"a reverse name that is not there", "9.9.0.240.in-addr.arpa.", "PTR", 3, soa("240.in-addr.arpa.")},
	} {
		t.Run(tc.what, func(t *testing.T) {
			qtype, ok := mdns.StringToType[tc.qtype]
			if !ok {
				fmt.Sscanf(tc.qtype, "TYPE%d", &qtype)
			}
			r, v := ask(t, a, false, nil, tc.name, qtype)
			if v != Accepted {
				t.Fatalf("verdict %d", v)
			}
			got := strings.Join(append(append(texts(r.Answer), texts(r.Ns)...), texts(r.Extra)...), "; ")
			if r.Rcode != tc.rcode || got != tc.want || !r.Authoritative || !r.RecursionAvailable || r.Truncated {
				t.Errorf("%s %s: rcode %d (%v)\n%s\nwant rcode %d\n%s", tc.name, tc.qtype, r.Rcode, r.MsgHdr, got,
					tc.rcode, tc.want)
			}
		})
	}
	for _, name := range []string{"example.com.", "www.example.org.", "com.", ".", "xmesh.", "1.0.0.10.in-addr.arpa."} {
		if _, v := ask(t, a, false, nil, name, mdns.TypeA); v != Forward {
			t.Errorf("%s: verdict %d, it is for others", name, v)
		}
	}
}

func TestRefused(t *testing.T) {
	a := NewAnswers(mustTable(t, Options{Suffixes: []string{"mesh"}},
		Host{Name: "web.mesh", Addrs: addrs("240.0.0.1")}), nil)
	for _, tc := range []struct {
		what   string
		change func(*mdns.Msg)
		rcode  int
	}{
		{"class CH", func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassCHAOS }, mdns.RcodeRefused},
		{"class ANY", func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassANY }, mdns.RcodeRefused},
		{"a zone transfer", func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeAXFR }, mdns.RcodeRefused},
		{"an incremental transfer", func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeIXFR }, mdns.RcodeRefused},
		{"NOTIFY", func(m *mdns.Msg) { m.Opcode = mdns.OpcodeNotify }, mdns.RcodeNotImplemented},
		{"UPDATE", func(m *mdns.Msg) { m.Opcode = mdns.OpcodeUpdate }, mdns.RcodeNotImplemented},
		{"no question", func(m *mdns.Msg) { m.Question = nil }, mdns.RcodeFormatError},
		{"two questions", func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) }, mdns.RcodeFormatError},
		{"two OPT records", func(m *mdns.Msg) { m.SetEdns0(1232, false); m.Extra = append(m.Extra, m.Extra[0]) },
			mdns.RcodeFormatError},
		{"a later EDNS", func(m *mdns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }, mdns.RcodeBadVers},
	} {
		t.Run(tc.what, func(t *testing.T) {
			r, v := ask(t, a, false, tc.change, "web.mesh.", mdns.TypeA)
			if v != Failed || r.Rcode != tc.rcode || len(r.Answer)+len(r.Ns) > 0 {
				t.Errorf("verdict %d, %v; want rcode %d without records", v, r, tc.rcode)
			}
		})
	}
	m, _ := new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA).Pack()
	m[2] |= 0x80
	for what, wire := range map[string][]byte{"a response": m, "half a header": m[:11], "nothing": nil} {
		var q Query
		if out, v := a.Resolve(&q, wire, netip.Addr{}, 0, false, nil); v != Dropped || len(out) > 0 {
			t.Errorf("%s: verdict %d with %d bytes, want no answer", what, v, len(out))
		}
	}
}

func TestEDNS(t *testing.T) {
	many := Host{Name: "many.mesh"}
	for i := range MaxAddrs {
		many.Addrs = append(many.Addrs, netip.AddrFrom4([4]byte{240, 0, 1, byte(i)}))
	}
	a := NewAnswers(mustTable(t, Options{Suffixes: []string{"mesh"}}, many), nil)
	for _, tc := range []struct {
		size      uint16 // 0 means no EDNS
		tcp       bool
		truncated bool
		most      int
	}{
		{0, false, true, 512}, {300, false, true, 512}, {512, false, true, 512}, {700, false, true, 700},
		{1232, false, false, 1232}, {4096, false, false, 1232}, {0, true, false, 65535}, {512, true, false, 65535},
	} {
		r, _ := ask(t, a, tc.tcp, func(m *mdns.Msg) {
			if tc.size > 0 {
				m.SetEdns0(tc.size, true)
				m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")})
			}
		}, "many.mesh.", mdns.TypeA)
		if r.Truncated != tc.truncated || !tc.truncated && len(r.Answer) != MaxAddrs {
			t.Errorf("size %d, tcp %v: truncated %v with %d records", tc.size, tc.tcp, r.Truncated, len(r.Answer))
		}
		if o := r.IsEdns0(); (o != nil) != (tc.size > 0) ||
			o != nil && (!o.Do() || len(o.Option) > 0 || o.UDPSize() != 1232) {
			t.Errorf("size %d: OPT %v", tc.size, o)
		}
		r.Compress = true
		if n := r.Len(); n > tc.most {
			t.Errorf("size %d, tcp %v: %d bytes", tc.size, tc.tcp, n)
		}
	}
}

func TestRotation(t *testing.T) {
	a := NewAnswers(mustTable(t, Options{},
		Host{Name: "x.mesh", Addrs: addrs("240.0.0.1", "240.0.0.2", "240.0.0.3")}), nil)
	m, _ := new(mdns.Msg).SetQuestion("x.mesh.", mdns.TypeA).Pack()
	seen := map[string]int{}
	for turn := range uint32(6) {
		var q Query
		out, _ := a.Resolve(&q, m, netip.Addr{}, turn, false, nil)
		var r mdns.Msg
		if err := r.Unpack(out); err != nil || len(r.Answer) != 3 {
			t.Fatal(err, r.Answer)
		}
		seen[r.Answer[0].(*mdns.A).A.String()]++
	}
	if len(seen) != 3 {
		t.Errorf("first addresses: %v, want each of three", seen)
	}
}

func TestViews(t *testing.T) {
	table := mustTable(t, Options{Suffixes: []string{"mesh"}},
		Host{Name: "web.mesh", Addrs: addrs("240.0.0.1"), Group: 1},
		Host{Name: "db.mesh", Addrs: addrs("240.0.0.2"), Ports: []Port{{"sql", 3306}}, Group: 70},
		Host{Name: "all.mesh", Addrs: addrs("240.0.0.3")},
		Host{Name: "api.example.com", Addrs: addrs("240.0.0.4"), Group: 2})
	a := NewAnswers(table, map[netip.Addr]*View{netip.MustParseAddr("10.0.0.1"): NewView([]uint32{1})})
	for name, want := range map[string]string{
		"web.mesh.":          "240.0.0.1",
		"all.mesh.":          "240.0.0.3",
		"db.mesh.":           "",
		"_sql._tcp.db.mesh.": "",
		"api.example.com.":   "forward",
	} {
		r, v := ask(t, a, false, nil, name, mdns.TypeA)
		got := "forward"
		if v != Forward {
			got = ""
			if len(r.Answer) > 0 {
				got = r.Answer[0].(*mdns.A).A.String()
			} else if r.Rcode != mdns.RcodeNameError {
				t.Errorf("%s: rcode %d; a name that a client may not see does not exist for him", name, r.Rcode)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var q Query
	m, _ := new(mdns.Msg).SetQuestion("db.mesh.", mdns.TypeA).Pack()
	if out, v := a.Resolve(&q, m, netip.MustParseAddr("::ffff:10.0.0.2"), 0, false, nil); v != Accepted || out[3]&15 != 0 {
		t.Error("a client without a view sees everything")
	}
}

// TestWith: a table after many changes gives the same answers as a new one.
func TestWith(t *testing.T) {
	o := Options{Suffixes: []string{"mesh", "svc.mesh"}}
	rng := rand.New(rand.NewPCG(1, 2))
	pool := []string{"a", "b", "*", "svc", "x-1"}
	name := func() string {
		s := pool[rng.IntN(2)]
		for range rng.IntN(3) {
			s += "." + pool[rng.IntN(2)]
		}
		if rng.IntN(4) == 0 {
			s = "*." + s
		}
		return s + []string{".mesh", ".svc.mesh", ".example.com"}[rng.IntN(3)]
	}
	host := func(name string) Host {
		h := Host{Name: name, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{240, 0, byte(rng.IntN(256)), byte(rng.IntN(256))})}}
		if rng.IntN(3) == 0 && name[0] != '*' {
			h.Ports = []Port{{"p", uint16(rng.IntN(1000))}}
		}
		return h
	}
	table := mustTable(t, o)
	now := map[string]Host{}
	for step := range 300 {
		var put []Host
		var remove []string
		if step == 150 {
			for i := range 2 * maxDelta {
				put = append(put, host(fmt.Sprintf("n%d.mesh", i)))
			}
		}
		for range rng.IntN(4) {
			put = append(put, host(name()))
		}
		for range rng.IntN(4) {
			remove = append(remove, name())
		}
		for _, n := range remove {
			delete(now, n)
		}
		for _, h := range put {
			now[h.Name] = h
		}
		var errs []error
		if table, errs = table.With(put, remove); len(errs) > 0 {
			t.Fatal(errs)
		}
		var all []Host
		for _, h := range now {
			all = append(all, h)
		}
		whole := mustTable(t, o, all...)
		if table.Len() != len(now) || whole.Len() != len(now) {
			t.Fatalf("step %d: %d and %d names, want %d", step, table.Len(), whole.Len(), len(now))
		}
		for range 100 {
			n := name()
			switch rng.IntN(4) {
			case 0:
				n = "_p._tcp." + n
			case 1:
				n = "q." + n
			case 2:
				_, n, _ = strings.Cut(n, ".")
			}
			for _, qtype := range []uint16{mdns.TypeA, mdns.TypeAAAA, mdns.TypeSRV} {
				m, _ := new(mdns.Msg).SetQuestion(n+".", qtype).Pack()
				var q1, q2 Query
				got, v1 := NewAnswers(table, nil).Resolve(&q1, m, netip.Addr{}, 0, true, nil)
				want, v2 := NewAnswers(whole, nil).Resolve(&q2, m, netip.Addr{}, 0, true, nil)
				if v1 != v2 || string(got) != string(want) {
					t.Fatalf("step %d: %s %d: %d %x, want %d %x", step, n, qtype, v1, got, v2, want)
				}
			}
		}
	}
}

func TestHostFaults(t *testing.T) {
	var long []netip.Addr
	for i := range 65 {
		long = append(long, netip.AddrFrom4([4]byte{1, 1, 1, byte(i)}))
	}
	table, errs := New(Options{Suffixes: []string{"mesh", "*.mesh", "a..b"}}, []Host{
		{Name: "web.mesh", Addrs: addrs("240.0.0.1")}, {Name: "WEB.mesh.", Addrs: addrs("240.0.0.2")}, {Name: ""},
		{Name: "a b.mesh"},
		{Name: strings.Repeat("a", 64) + ".mesh"}, {Name: strings.Repeat("abcdefgh.", 30) + "mesh"}, {Name: "x.*.mesh"},
		{Name: "y.mesh", Addrs: long}, {Name: "z.mesh", Addrs: addrs("fe80::1%eth0")}, {Name: "p.mesh", PTR: "a..b"},
		{Name: "q.mesh", PTR: "a.b", Addrs: addrs("240.0.0.1")},
	})
	if len(errs) != 12 || table.Len() != 1 {
		t.Errorf("%d names and %d errors, want 1 and 12:\n%v", table.Len(), len(errs), errs)
	}
	if r, _ := ask(t, NewAnswers(table, nil), false, nil, "web.mesh.", mdns.TypeA); len(r.Answer) != 1 ||
		r.Answer[0].(*mdns.A).A.String() != "240.0.0.1" {
		t.Errorf("%v: the first host with a name has it", r)
	}
}

func TestReverse(t *testing.T) {
	for in, want := range map[string]string{
		"240.0.0.0/8": "240.in-addr.arpa", "10.1.0.0/16": "1.10.in-addr.arpa",
		"fd00:fd00::/64": "0.0.0.0.0.0.0.0.0.0.d.f.0.0.d.f.ip6.arpa", "10.0.0.0/15": "0.10.in-addr.arpa 1.10.in-addr.arpa",
		"10.255.254.0/23": "254.255.10.in-addr.arpa 255.255.10.in-addr.arpa",
	} {
		if got := strings.Join(ReverseSuffixes(netip.MustParsePrefix(in)), " "); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if got := ReverseName(netip.MustParseAddr("fd00::1")); got !=
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa" {
		t.Error(got)
	}
}

func TestNoAllocations(t *testing.T) {
	a := NewAnswers(mustTable(t, Options{Suffixes: []string{"mesh"}},
		Host{Name: "web.mesh", Addrs: addrs("240.0.0.1")}, Host{Name: "*.w.mesh", Addrs: addrs("240.0.0.1")}), nil)
	out := make([]byte, 0, MaxUDP)
	var q Query
	for _, name := range []string{"web.mesh.", "nope.mesh.", "x.y.w.mesh.", "www.example.com."} {
		m, _ := new(mdns.Msg).SetQuestion(name, mdns.TypeA).SetEdns0(1232, false).Pack()
		if n := testing.AllocsPerRun(100, func() { a.Resolve(&q, m, netip.Addr{}, 0, false, out) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
