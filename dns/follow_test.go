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

// TestFollow checks that an alias from outside that leads into the mesh ends with the records of
// the table, as the client sees them, whatever the upstream has about the name. Aliases that lead
// in a circle fail.
func TestFollow(t *testing.T) {
	up := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		switch strings.ToLower(q.name()) {
		case "shop.example.org.":
			q.Reply(t, 0, []string{q.name() + " 60 IN CNAME Backend.mesh."})
		case "far.example.org.":
			q.Reply(t, mdns.RcodeNameError, []string{"near.example.org. 60 IN CNAME backend.mesh.",
				q.name() + " 60 IN CNAME near.example.org."}, soa60)
		case "claimed.example.org.":
			q.Reply(t, 0, []string{q.name() + " 60 IN CNAME backend.mesh.", "backend.mesh. 60 IN A 192.0.2.66"})
		case "none.example.org.":
			q.Reply(t, 0, []string{q.name() + " 60 IN CNAME none.mesh."})
		case "apart.example.org.":
			q.Reply(t, 0, []string{q.name() + " 60 IN CNAME pay.example.com."})
		case "outside.example.org.":
			q.Reply(t, 0, []string{q.name() + " 60 IN CNAME www.example.org.", "www.example.org. 60 IN A 192.0.2.7"})
		case "big.example.org.":
			q.Reply(t, 0, []string{q.name() + " 60 IN CNAME big.mesh."})
		case "a.example.org.":
			q.Reply(t, 0, []string{q.name() + " 60 IN CNAME b.example.org.", "b.example.org. 60 IN CNAME A.example.org."})
		case "self.example.org.":
			q.Reply(t, 0, []string{q.name() + " 60 IN CNAME " + table.Passthrough("self.example.org.")})
		default:
			t.Errorf("%s was asked of others", q.name())
			q.Reply(t, mdns.RcodeRefused, nil)
		}
	})
	c := newTester(t, forward.Options{}, up)
	big := table.Host{Name: "big.mesh"}
	for i := range 60 {
		big.Addrs = append(big.Addrs, netip.AddrFrom4([4]byte{240, 0, 1, byte(i)}))
	}
	apart := host("pay.example.com", "240.0.0.9")
	apart.Group = table.Apart
	c.swap(host("backend.mesh", "240.0.0.1"), big, apart)
	answers := c.srv.answers.Load()
	const failed, none = mdns.RcodeServerFailure, mdns.RcodeNameError
	for _, tc := range []struct {
		name, qtype string
		rcode       int
		want        string
	}{
		{"shop.example.org", "A", 0, "shop.example.org. 60 IN CNAME Backend.mesh.; backend.mesh. 30 IN A 240.0.0.1"},
		{"shop.example.org", "AAAA", 0, "shop.example.org. 60 IN CNAME Backend.mesh."},
		{"shop.example.org", "CNAME", 0, "shop.example.org. 60 IN CNAME Backend.mesh."},
		{"far.example.org", "A", 0, "far.example.org. 60 IN CNAME near.example.org.; near.example.org. 60 IN CNAME " +
			"backend.mesh.; backend.mesh. 30 IN A 240.0.0.1"},
		{"claimed.example.org", "A", 0, "claimed.example.org. 60 IN CNAME backend.mesh.; backend.mesh. 30 IN A 240.0.0.1"},
		{"none.example.org", "A", none, "none.example.org. 60 IN CNAME none.mesh."},
		{"apart.example.org", "A", 0, "apart.example.org. 60 IN CNAME pay.example.com."},
		{"outside.example.org", "A", 0,
			"outside.example.org. 60 IN CNAME www.example.org.; www.example.org. 60 IN A 192.0.2.7"},
		{"a.example.org", "A", failed, ""},
		{table.Passthrough("a.example.org"), "A", failed, ""},
		{table.Passthrough("self.example.org"), "A", failed, ""},
	} {
		for _, times := range []string{"asked", "cached"} {
			for _, k := range kinds {
				m := c.query(k, tc.name, mdns.StringToType[tc.qtype])
				if got := listed(m.Answer); m.Rcode != tc.rcode || !strings.EqualFold(got, tc.want) || m.AuthenticatedData {
					t.Errorf("%s %s %s %+v: %d %s, want %d %s", tc.name, tc.qtype, times, k, m.Rcode, got, tc.rcode, tc.want)
				}
			}
		}
	}
	if m := c.query(clientKind{}, "big.example.org", mdns.TypeA); !m.Truncated || len(m.Answer) < 2 {
		t.Errorf("an answer that is larger than a packet: %v", m)
	}
	if m := c.query(clientKind{tcp: true}, "big.example.org", mdns.TypeA); m.Truncated || len(m.Answer) != 61 {
		t.Errorf("over TCP: %d records", len(m.Answer))
	}
	c.srv.Swap(answers.Others(&table.View{All: true, V4: true, V6: true, Apart: []uint32{table.Apart}}))
	if m := c.query(clientKind{}, "apart.example.org", mdns.TypeA); listed(m.Answer) !=
		"apart.example.org. 60 IN CNAME pay.example.com.; pay.example.com. 30 IN A 240.0.0.9" {
		t.Errorf("a client that sees the host: %v", m)
	}
	c.srv.Swap(table.PendingAnswers([]string{"mesh"}))
	if m := c.query(clientKind{}, "shop.example.org", mdns.TypeA); m.Rcode != failed || len(m.Answer) != 0 {
		t.Errorf("without a table: %v", m)
	}
}

// TestProxySpelling checks that a query with an upper-case last letter gets the real addresses of a
// host that only some clients see, without a lifetime in caches, and no virtual address. Every
// other spelling gets the virtual address.
func TestProxySpelling(t *testing.T) {
	for name, want := range map[string]string{"Pay.example.COM": "pay.example.coM", "db-1": "dB-1", "x.9.": "X.9.",
		"9.9": "", "": ""} {
		if got := table.ProxySpelling(name); got != want {
			t.Errorf("the spelling of %q is %q, want %q", name, got, want)
		}
	}
	up := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		switch strings.ToLower(q.name()) {
		case "pay.example.com.", "db-1.":
			q.Reply(t, 0, []string{q.name() + " 60 IN CNAME shop.mesh.", "shop.mesh. 30 IN A 192.0.2.7"})
		default:
			q.Reply(t, 0, []string{q.name() + " 60 IN A 192.0.2.8"})
		}
	})
	c := newTester(t, forward.Options{}, up)
	pay, db := host("pay.example.com", "240.0.0.9"), host("db-1", "240.0.0.8")
	pay.Group, db.Group, pay.Uncached, db.Uncached = table.Apart, table.Apart+1, true, true
	c.swap(pay, db, host("shop.mesh", "240.0.0.1"))
	c.srv.Swap(c.srv.answers.Load().Others(&table.View{All: true, V4: true, V6: true,
		Apart: []uint32{table.Apart, table.Apart + 1}}))
	for _, times := range []string{"asked", "cached"} {
		for _, k := range kinds {
			for name, want := range map[string]string{
				"pay.example.com": "pay.example.com. 0 IN A 240.0.0.9", "PAY.EXAMPLE.COM": "PAY.EXAMPLE.COM. 0 IN A 240.0.0.9",
				"pAy.example.coM": "pAy.example.coM. 0 IN A 240.0.0.9", "db-1": "db-1. 0 IN A 240.0.0.8",
				"pay.example.coM": "pay.example.coM. 0 IN CNAME shop.mesh.; shop.mesh. 0 IN A 192.0.2.7",
				"dB-1":            "dB-1. 0 IN CNAME shop.mesh.; shop.mesh. 0 IN A 192.0.2.7",
				"www.example.coM": "www.example.coM. 60 IN A 192.0.2.8",
			} {
				if m := c.query(k, name, mdns.TypeA); m.Rcode != 0 || !strings.EqualFold(listed(m.Answer), want) ||
					m.Question[0].Name != name+"." {
					t.Errorf("%s %s %+v: %s, want %s", name, times, k, fmt.Sprint(m.Rcode, listed(m.Answer)), want)
				}
			}
		}
	}
}
