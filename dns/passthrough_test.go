package dns

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// TestPassthrough: a name with the label is forwarded although the table has the name behind it.
// The reply is an alias of the upstream's answer.
func TestPassthrough(t *testing.T) {
	const name = "db.example.com"
	up := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		switch strings.ToLower(q.name()) {
		case "in.mesh.":
			t.Error("a name of the mesh was asked of others")
		case "db.example.com.":
			q.Reply(t, 0, []string{q.name() + " 60 IN CNAME real.example.net.", "real.example.net. 30 IN A 192.0.2.7",
				"real.example.net. 30 IN A 240.0.0.9"})
		case "inside.example.com.":
			q.Reply(t, 0, []string{q.name() + " 60 IN A 240.0.0.9", q.name() + " 60 IN AAAA fd00:fd00::9"})
		case "many.example.com.":
			var all []string
			for i := range 200 {
				all = append(all, fmt.Sprintf("%s 60 IN A 192.0.2.%d", q.name(), i))
			}
			q.Reply(t, 0, all)
		default:
			q.Reply(t, mdns.RcodeNameError, nil, strings.ReplaceAll(soa60, "example.org", "example.com"))
		}
	})
	c := newTester(t, forward.Options{}, up)
	c.srv.o.PassthroughDeny = []netip.Prefix{netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fd00:fd00::/29")}
	c.swap(host(name, "240.0.0.1"), host("in.mesh", "240.0.0.2"))
	for _, times := range []string{"asked", "cached"} {
		for _, k := range kinds {
			m := c.query(k, "_NearSide-past.dB.example.com", mdns.TypeA)
			if got := listed(m.Answer); got != "_NearSide-past.dB.example.com. 30 IN CNAME dB.example.com.; dB.example.com. "+
				"60 IN CNAME real.example.net.; real.example.net. 30 IN A 192.0.2.7" {
				t.Errorf("%s %+v: %d %s", times, k, m.Rcode, got)
			}
		}
	}
	c.want(name, "A", 0, name+". 30 IN A 240.0.0.1")
	if m := c.query(clientKind{}, table.Passthrough("inside.example.com"), mdns.TypeA); m.Rcode != 0 ||
		len(m.Answer) != 0 {
		t.Errorf("addresses that it must not lead to: %v", m)
	}
	if m := c.query(clientKind{}, table.Passthrough("none.example.com"), mdns.TypeA); m.Rcode != mdns.RcodeNameError ||
		len(m.Ns) != 1 || m.Question[0].Name != table.Passthrough("none.example.com.") {
		t.Errorf("a name that does not exist: %v", m)
	}
	if m := c.query(clientKind{}, table.Passthrough("many.example.com"), mdns.TypeA); !m.Truncated {
		t.Errorf("the response is larger than a packet: %v", m)
	}
	if m := c.query(clientKind{tcp: true}, table.Passthrough("many.example.com"), mdns.TypeA); m.Truncated ||
		len(m.Answer) != 201 {
		t.Errorf("over TCP: %d records", len(m.Answer))
	}
	if m := c.query(clientKind{}, table.Passthrough("in.mesh"), mdns.TypeA); m.Rcode != mdns.RcodeNameError {
		t.Errorf("a name of the mesh is nothing that others know: %v", m)
	}
}

func listed(list []mdns.RR) string {
	var out []string
	for _, rr := range list {
		out = append(out, strings.Join(strings.Fields(rr.String()), " "))
	}
	return strings.Join(out, "; ")
}

// TestApart: only clients whose view lists a group from Apart on see its hosts.
func TestApart(t *testing.T) {
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", answerA(t, "60")))
	names := mustTable(t, meshOptions,
		table.Host{Name: "db.example.com", Addrs: addrs("240.0.0.1"), Group: table.Apart + 1}, host("web.mesh", "240.0.0.2"))
	local := netip.MustParseAddr("127.0.0.1")
	for _, x := range []struct {
		a    *table.Answers
		want string
	}{
		{table.NewAnswers(names, nil), "192.0.2.1"},
		{table.NewAnswers(names, nil).Others(apart(table.Apart + 1)), "240.0.0.1"},
		{table.NewAnswers(names, map[netip.Addr]*table.View{local: {V4: true, V6: true, Apart: []uint32{table.Apart + 2}}}),
			"192.0.2.1"},
		{table.NewAnswers(names,
			map[netip.Addr]*table.View{local: apart(table.Apart+2, table.Apart+1)}),
			"240.0.0.1"},
	} {
		c.srv.Swap(x.a)
		if m := c.query(clientKind{}, "db.example.com", mdns.TypeA); firstA(m) != x.want {
			t.Errorf("%v, want %s", m, x.want)
		}
		c.want("web.mesh", "A", 0, "web.mesh. 30 IN A 240.0.0.2")
	}
}

// apart returns a view with additional groups from Apart on.
func apart(groups ...uint32) *table.View {
	return &table.View{All: true, V4: true, V6: true, Apart: groups}
}

// FuzzPassthrough: for any upstream reply, the renamed reply is a message of at most the given
// size with the same ID, or SERVFAIL.
func FuzzPassthrough(f *testing.F) {
	f.Add(packed(f, new(mdns.Msg).SetQuestion("db.example.com.", mdns.TypeA)), 512)
	r := &aliasReplier{label: table.PassthroughLabel}
	f.Fuzz(func(t *testing.T, wire []byte, most int) {
		if len(wire) < table.HeaderLen || most < table.MinUDP || most > table.MaxTCP {
			return
		}
		out := r.renamed(wire, most)
		var m mdns.Msg
		if err := m.Unpack(out); err != nil || len(out) > most || out[0] != wire[0] || out[1] != wire[1] {
			t.Errorf("%d bytes of %d, %v: %x", len(out), most, err, out)
		}
	})
}
