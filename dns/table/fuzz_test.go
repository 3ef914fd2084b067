package table

import (
	"net/netip"
	"testing"

	mdns "github.com/miekg/dns"
)

// FuzzResolve resolves arbitrary bytes, and parses the query and the reply with miekg/dns.
func FuzzResolve(f *testing.F) {
	many := Host{Name: "many.mesh", Ports: []Port{{"http", 80}}}
	for i := range MaxAddrs {
		many.Addrs = append(many.Addrs, netip.AddrFrom4([4]byte{240, 0, 1, byte(i)}))
	}
	a := NewAnswers(mustTable(f, Options{Suffixes: []string{"mesh", "free.example.net"}, Local: true,
		Default: []string{"free.example.net"}, Forwarded: []string{"lab.free.example.net"}}, many,
		Host{Name: "*.w.mesh", Addrs: addrs("fd00::1")}), nil)
	for _, name := range []string{
		"many.mesh.", "x.w.mesh.", "_http._tcp.many.mesh.", "nope.mesh.", "www.example.com.", ".", "mesh.", "x.localhost.",
		"free.example.net.", "x.lab.free.example.net.", "1.0.0.127.in-addr.arpa.",
	} {
		for _, qtype := range []uint16{mdns.TypeA, mdns.TypeSRV, mdns.TypeANY, mdns.TypeAXFR, mdns.TypeSOA, mdns.TypeNS} {
			m := new(mdns.Msg).SetQuestion(name, qtype)
			wire, _ := m.Pack()
			f.Add(wire, false)
			wire, _ = m.SetEdns0(4096, true).Pack()
			f.Add(wire, true)
			wire, _, _ = mdns.TsigGenerate(m.SetTsig("key.example.", mdns.HmacSHA256, 300, 1), "c2VjcmV0", "", false)
			f.Add(wire, false)
		}
	}
	f.Fuzz(func(t *testing.T, wire []byte, tcp bool) {
		var q Query
		out, v := a.Resolve(&q, wire, netip.Addr{}, 1, tcp, nil)
		var m, r mdns.Msg
		readable := m.Unpack(wire) == nil
		switch v {
		case Dropped, Forward:
			if len(out) > 0 {
				t.Fatalf("verdict %d with a reply", v)
			}
			if v == Forward && readable && len(m.Question) == 1 && mdns.IsSubDomain("mesh.", m.Question[0].Name) {
				t.Fatalf("%q is ours", m.Question[0].Name)
			}
			return
		}
		if err := r.Unpack(out); err != nil {
			t.Fatalf("the reply cannot be read: %v\n%x", err, out)
		}
		if most := q.Limit(tcp); len(out) > most {
			t.Fatalf("%d bytes, at most %d", len(out), most)
		}
		if r.Id != uint16(wire[0])<<8|uint16(wire[1]) || !r.Response {
			t.Fatalf("not a reply to this query: %v", r.MsgHdr)
		}
		if !readable {
			return
		}
		if v == Accepted && (len(r.Question) != 1 || r.Question[0] != m.Question[0]) {
			t.Fatalf("question %v, want %v", r.Question, m.Question)
		}
		if (r.IsEdns0() != nil) != (m.IsEdns0() != nil) && v == Accepted {
			t.Fatalf("OPT %v for %v", r.IsEdns0(), m.IsEdns0())
		}
	})
}

// FuzzName compares the text form of names with miekg/dns.
func FuzzName(f *testing.F) {
	f.Add("web.mesh")
	f.Add("*.svc.mesh.")
	f.Add("a..b")
	f.Fuzz(func(t *testing.T, s string) {
		wire, err := AppendName(nil, s)
		if err != nil {
			return
		}
		name, _, err := mdns.UnpackDomainName(wire, 0)
		if err != nil || name != mdns.CanonicalName(s) {
			t.Fatalf("%q is %q, %v", s, name, err)
		}
		if got := string(AppendText(nil, wire)) + "."; got != name {
			t.Fatalf("%q, want %q", got, name)
		}
	})
}
