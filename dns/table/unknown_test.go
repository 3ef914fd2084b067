package table

import (
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
)

// TestUnknownViews checks that names whose answers depend on an unknown view get SERVFAIL, and that
// all others are answered or forwarded.
func TestUnknownViews(t *testing.T) {
	hosts := mustTable(t, Options{Suffixes: []string{"mesh"}},
		Host{Name: "canary.test", Addrs: addrs("192.0.2.53"), Group: Everyone},
		Host{Name: "all.mesh", Addrs: addrs("240.0.0.1")},
		Host{Name: "some.mesh", Addrs: addrs("240.0.0.2"), Group: 1, Ports: []Port{{Name: "web", Number: 80}}},
		Host{Name: "db.example.com", Addrs: addrs("240.0.0.3"), Group: Apart + 2})
	const here, other, known = "127.0.0.1", "10.0.0.9", "10.0.0.1"
	seeing := NewView(nil)
	seeing.Apart = []uint32{Apart + 2}
	all := func(set Unknown) *View { return &View{All: true, V4: true, V6: true, Unknown: set} }
	for _, c := range []struct {
		what   string
		others *View
		remote *View
		want   map[string]string // by client and name
	}{
		{"nothing", nil, nil, map[string]string{
			here + " some.mesh": "NOERROR", other + " some.mesh": "NOERROR", other + " db.example.com": "forwarded",
			other + " cache.example.com": "SERVFAIL", here + " cache.example.com": "SERVFAIL"}},
		{"domains", all(UnknownApart), all(UnknownApart), map[string]string{
			here + " db.example.com": "SERVFAIL", other + " db.example.com": "SERVFAIL", here + " some.mesh": "NOERROR",
			other + " some.mesh": "NOERROR", other + " all.mesh": "NOERROR", other + " example.com": "forwarded"}},
		{"groups", all(UnknownApart), all(UnknownGroups), map[string]string{
			here + " some.mesh": "NOERROR", other + " some.mesh": "SERVFAIL", other + " all.mesh": "NOERROR",
			other + " _web._tcp.some.mesh": "SERVFAIL", "::ffff:127.0.0.1 some.mesh": "NOERROR", "::1 some.mesh": "NOERROR",
			other + " gone.mesh": "NXDOMAIN", other + " mesh": "NOERROR"}},
		{"families", all(UnknownApart), all(UnknownAll), map[string]string{
			here + " all.mesh": "NOERROR", other + " all.mesh": "SERVFAIL", other + " some.mesh": "SERVFAIL",
			other + " gone.mesh": "NXDOMAIN", other + " canary.test": "NOERROR", other + " mesh": "NOERROR"}},
	} {
		a := NewAnswers(hosts, map[netip.Addr]*View{netip.MustParseAddr(known): seeing}).Others(c.others).Remote(c.remote).
			Failing([]string{"cache.example.com", "db.example.com"})
		if c.others == nil {
			a = a.Failing([]string{"cache.example.com"})
		}
		for _, name := range []string{"canary.test", "all.mesh", "db.example.com"} {
			c.want[known+" "+name] = "NOERROR"
		}
		c.want[known+" some.mesh"] = "NXDOMAIN"
		c.want[known+" cache.example.com"] = "forwarded"
		c.want[here+" canary.test"] = "NOERROR"
		c.want[other+" www.example.com"] = "forwarded"
		for key, want := range c.want {
			client, name, _ := strings.Cut(key, " ")
			if got := outcomeOf(t, a, client, name); got != want {
				t.Errorf("%s unknown: %s gets %s, want %s", c.what, key, got, want)
			}
		}
	}
}

// outcomeOf returns the response code of a client's query for SRV records, or forwarded.
func outcomeOf(t *testing.T, a *Answers, client, name string) string {
	t.Helper()
	wire, err := new(mdns.Msg).SetQuestion(mdns.Fqdn(name), mdns.TypeSRV).Pack()
	if err != nil {
		t.Fatal(err)
	}
	var q Query
	out, v := a.Resolve(&q, wire, netip.MustParseAddr(client), 0, false, nil)
	if v == Forward {
		return "forwarded"
	}
	return mdns.RcodeToString[int(out[3]&15)]
}
