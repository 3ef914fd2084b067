package dns

import (
	"net/netip"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// TestForwarding: a name outside the table is queried once, and then comes from the cache, over
// UDP and TCP.
func TestForwarding(t *testing.T) {
	up := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		q.Reply(t, mdns.RcodeSuccess, []string{q.name() + " 60 IN A 192.0.2.1"})
	})
	f, err := forward.New(forward.Options{Servers: []netip.AddrPort{up.addr}})
	if err != nil {
		t.Fatal(err)
	}
	runForwarder(t, f)
	r := serve(t, ServerOptions{Forwarder: f}, "127.0.0.1:0", webHost)
	for _, network := range []string{"udp", "tcp", "udp"} {
		m := r.exchange(t, network, "127.0.0.1", new(mdns.Msg).SetQuestion("wWw.example.org.", mdns.TypeA))
		if len(m.Answer) != 1 || m.Question[0].Name != "wWw.example.org." || m.Authoritative {
			t.Errorf("%s: %v", network, m)
		}
		if m := r.exchange(t, network, "127.0.0.1", new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)); !m.Authoritative ||
			len(m.Answer) != 1 {
			t.Errorf("%s: %v", network, m)
		}
	}
	sent := uint64(0)
	for _, c := range r.Counts() {
		if c.Source == "forwarded" {
			sent += c.N
		}
	}
	if sent != 1 {
		t.Errorf("counts %v, want one question that was sent on", r.Counts())
	}
}
