package forward

import (
	"testing"

	mdns "github.com/miekg/dns"
)

func packed(t testing.TB, m *mdns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return b
}

// records parses records in zone file syntax.
func records(t testing.TB, lines ...string) (out []mdns.RR) {
	t.Helper()
	for _, l := range lines {
		rr, err := mdns.NewRR(l)
		if err != nil {
			t.Errorf("%q: %v", l, err)
			continue
		}
		out = append(out, rr)
	}
	return out
}

// message returns a query for the address of a name, with EDNS.
func message(t testing.TB, name string) []byte {
	return packed(t, new(mdns.Msg).SetQuestion(mdns.Fqdn(name), mdns.TypeA).SetEdns0(1232, false))
}

const soa60 = "example.org. 900 IN SOA ns.example.org. host.example.org. 1 7200 900 86400 60"
