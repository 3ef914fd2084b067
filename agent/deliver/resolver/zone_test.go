package resolver_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/suffix"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// generators returns a mesh with a generator for each suffix and one service.
func generators(suffixes ...string) string {
	var b strings.Builder
	b.WriteString(oneMesh + "---\ntype: MeshService\nmesh: default\nname: api\nspec:\n" +
		"  selector: {dataplaneTags: {kuma.io/service: api}}\n  ports: [{port: 80}]\n")
	for i, s := range suffixes {
		fmt.Fprintf(&b, "---\ntype: HostnameGenerator\nname: g%d\nspec:\n  selector: {meshService: {matchLabels: {}}}\n"+
			"  template: '{{ .DisplayName }}.%s'\n", i, s)
	}
	return b.String()
}

// ownership returns which suffixes of generators are owned, and why each one is owned or not.
func (n *node) ownership() (owned, why map[string]string) {
	s := n.State()
	owned, why = map[string]string{}, map[string]string{}
	for _, x := range s.Suffixes {
		owned[x.Name], why[x.Name] = x.Generator, x.Reason
	}
	for _, x := range s.Unowned {
		why[x.Name] = x.Reason
	}
	return owned, why
}

// decided waits until upstreams have been asked about all suffixes.
func (n *node) decided() {
	n.t.Helper()
	n.until("upstreams were asked about all suffixes", func(s *api.DNSStatus) bool {
		return !slices.ContainsFunc(s.Unowned, func(x api.DNSSuffix) bool { return strings.Contains(x.Reason, "yet") })
	})
}

// until waits until the status is as expected.
func (n *node) until(what string, is func(*api.DNSStatus) bool) {
	n.t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		s := n.State()
		if is(&s.DNSStatus) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			n.t.Fatalf("not in time: %s; %+v", what, s.Unowned)
		}
	}
}

// world has the zones that other servers own in TestSuffixes.
const world = `
example.com. 60 IN SOA ns.example.com. root.example.com. 1 3600 600 86400 60
www.example.com. 60 IN A 198.51.100.1
alias.example.com. 60 IN CNAME nowhere.example.
db.svc.example.com. 60 IN A 198.51.100.2
shop.co.uk. 60 IN SOA ns.shop.co.uk. root.shop.co.uk. 1 3600 600 86400 60
*.shop.co.uk. 60 IN A 198.51.100.3
corp.local. 60 IN SOA dc1.corp.local. root.corp.local. 1 3600 600 86400 60
dc1.sites.corp.local. 60 IN A 198.51.100.4
home.arpa. 60 IN SOA router.home.arpa. root.home.arpa. 1 3600 600 86400 60
`

// TestSuffixes compares the decisions about suffixes of HostnameGenerators with the table of the
// documentation, and with the answers to queries.
func TestSuffixes(t *testing.T) {
	const page = "../../../docs/suffixes.md"
	text, err := os.ReadFile(page)
	agenttest.Do(t, err)
	type row struct{ name, result, why string }
	var rows []row
	var list []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		r := row{strings.Trim(cells[1], " `"), strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])}
		rows, list = append(rows, r), append(list, r.name)
	}
	if len(rows) < 40 {
		t.Fatalf("%s has %d suffixes, want at least 40", page, len(rows))
	}
	up := newAuthority(t, "test.", world)
	n := newNode(t, generators(list...), "dns.upstreams="+up.addr,
		"dns.forward=[{domains: [lab.example.org], upstreams: ['"+up.addr+"']}]").run()
	n.decided()
	owned, why := n.ownership()
	var is []string
	for _, r := range rows {
		got := row{r.name, "forwarded", why[r.name]}
		refusal := suffix.Refusal(&resource.Resource{Spec: &resource.HostnameGenerator{Template: "{{ .Name }}." + r.name}})
		by, own := owned[r.name]
		switch {
		case refusal != "":
			got.result = "refused"
		case own && by == "" && strings.HasSuffix(r.name, ".arpa"):
			got.result, got.why = "owned", "it has the reverse names of virtual addresses"
		case own && by == "":
			got.result, got.why = "owned", "`dns.suffixes` lists it"
		case own:
			got.result = "owned"
		}
		got.why = strings.ReplaceAll(got.why, "; list it in dns.suffixes if the names are yours", "")
		is = append(is, fmt.Sprintf("| `%s` | %s | %s |\n", got.name, got.result, strings.ReplaceAll(got.why, "dns.suffixes "+
			"lists", "`dns.suffixes` lists")))
		name := "neighbor-of-api." + r.name
		answer := n.ask("udp", name, miekg.TypeTXT)
		if asked := up.wasAsked(name); asked == own {
			t.Errorf("%s is %s, and %s was forwarded: %v (%s)", r.name, got.result, name, asked, answer)
		}
		if !own && strings.HasPrefix(answer, "NXDOMAIN") && strings.HasSuffix(r.name, "shop.co.uk") {
			t.Errorf("%s: %s", name, answer)
		}
	}
	want := strings.Join(is, "")
	if strings.Contains(string(text), want) {
		return
	}
	if os.Getenv("UPDATE_GOLDEN") == "" {
		t.Fatalf("%s differs; update it with UPDATE_GOLDEN=1. The decisions are:\n%s", page, want)
	}
	start := strings.Index(string(text), "| `")
	agenttest.Do(t, os.WriteFile(page, []byte(string(text)[:start]+want), 0o644))
}

// TestZoneBeside checks that no name of another server's zone disappears, although generators have
// suffixes in the zone: its apex, a name with names below, a name below a wildcard, and a zone
// below.
func TestZoneBeside(t *testing.T) {
	up := newAuthority(t, "", `
corp.example.net. 60 IN SOA ns.corp.example.net. root.corp.example.net. 1 3600 600 86400 60
corp.example.net. 60 IN NS ns.corp.example.net.
ns.corp.example.net. 60 IN A 198.51.100.1
www.corp.example.net. 60 IN A 198.51.100.2
api.svc.corp.example.net. 60 IN A 198.51.100.3
db.svc.corp.example.net. 60 IN A 198.51.100.4
*.wild.corp.example.net. 60 IN A 198.51.100.5
alias.corp.example.net. 60 IN CNAME www.corp.example.net.
sub.corp.example.net. 60 IN SOA ns.sub.corp.example.net. root.sub.corp.example.net. 1 3600 600 86400 60
deep.of.sub.corp.example.net. 60 IN A 198.51.100.6
`)
	n := newNode(t, generators("corp.example.net", "svc.corp.example.net", "x.wild.corp.example.net",
		"sub.corp.example.net", "of.sub.corp.example.net", "free.corp.example.net", "alias.corp.example.net",
		"www.corp.example.net"), "dns.upstreams="+up.addr).run()
	n.decided()
	owned, _ := n.ownership()
	if _, ok := owned["free.corp.example.net"]; !ok {
		t.Error("the free suffix is not owned")
	}
	virtual := n.ask("udp", "api.free.corp.example.net", miekg.TypeA)
	if !strings.HasPrefix(virtual, "NOERROR 24") {
		t.Errorf("api.free.corp.example.net: %s", virtual)
	}
	for _, name := range []string{"corp.example.net",
		"ns.corp.example.net", "www.corp.example.net", "db.svc.corp.example.net",
		"svc.corp.example.net", "a.wild.corp.example.net", "b.x.wild.corp.example.net", "x.wild.corp.example.net",
		"alias.corp.example.net", "sub.corp.example.net", "deep.of.sub.corp.example.net", "none.corp.example.net",
		"none.svc.corp.example.net", "none.of.sub.corp.example.net", "none.www.corp.example.net"} {
		for _, qtype := range []uint16{miekg.TypeA, miekg.TypeSOA, miekg.TypeNS, miekg.TypeAAAA} {
			want, got := askAt(t, up.addr, "udp", name, qtype), n.ask("udp", name, qtype)
			if got != want {
				t.Errorf("%s, %s: %q, without the agent %q", name, miekg.TypeToString[qtype], got, want)
			}
		}
	}
	// The mesh has precedence only for its own names.
	if got := n.ask("udp", "api.svc.corp.example.net", miekg.TypeA); got != virtual {
		t.Errorf("api.svc.corp.example.net: %s, want %s", got, virtual)
	}
	if got := n.ask("udp", "none.free.corp.example.net", miekg.TypeA); got != "NXDOMAIN" ||
		up.wasAsked("none.free.corp.example.net") {
		t.Errorf("a name below the free suffix: %s", got)
	}

	for name, want := range map[string]string{
		"none.free.corp.example.net": "the suffix of HostnameGenerator g5 (upstreams answered that the name does not exist)",
		"db.svc.corp.example.net": "of HostnameGenerator g1 is not owned: an upstream has this name, " +
			"so it may have names below it",
		"none.onion": "it is below onion, whose names never leave the host: DNS has no names of Tor " +
			"(RFC 7686)",
		"www.localhost": "the agent answers localhost and names below it: it names this host (RFC 6761",
	} {
		x, err := explaindns.Name(explaindns.DNSInput{Resolver: n.State(), Meshes: n.last.Load().Meshes},
			&explain.DNSQuestion{Name: name + "."})
		if err != nil || !strings.Contains(x.Reason+x.Steps[0].Reason, want) {
			t.Errorf("explanation of %s: %v: %+v, want %q", name, err, x, want)
		}
	}

	// The zone is created later.
	up.add(t, "free.corp.example.net. 60 IN SOA ns.corp.example.net. root.corp.example.net. 1 3600 600 86400 60")
	up.add(t, "new.free.corp.example.net. 60 IN A 198.51.100.7")
	n.Configure(n.cfg) // ask again
	n.becomes("new.free.corp.example.net", miekg.TypeA, "NOERROR 198.51.100.7")
}

// TestSilentUpstream checks that a suffix is not owned while no upstream answers.
func TestSilentUpstream(t *testing.T) {
	up := newAuthority(t, "example.net.", "")
	n := newNode(t, generators("mesh.example.net"), "dns.upstreams="+up.addr).run()
	n.decided()
	owned, why := n.ownership()
	if _, ok := owned["mesh.example.net"]; ok || !strings.HasPrefix(why["mesh.example.net"], "no upstream answered") {
		t.Errorf("owned %v; %v", owned, why)
	}
	if got := n.ask("udp", "x.mesh.example.net", miekg.TypeA); got != "SERVFAIL" || !up.wasAsked("x.mesh.example.net") {
		t.Errorf("a name below it: %s", got)
	}
	up.mu.Lock()
	up.refused = ""
	up.mu.Unlock()
	n.Configure(n.cfg)
	n.becomes("y.mesh.example.net", miekg.TypeA, "NXDOMAIN")
	n.until("the suffix is owned", func(s *api.DNSStatus) bool { return len(s.Unowned) == 0 })
}

// TestZoneOfAnotherServer checks that clients that query a server in another network namespace
// get its names below suffixes that only the upstreams of the agent do not have.
func TestZoneOfAnotherServer(t *testing.T) {
	up := newAuthority(t, "", "")
	vpn := newAuthority(t, "", `
vpn.example.net. 60 IN SOA ns.vpn.example.net. root.vpn.example.net. 1 3600 600 86400 60
db.vpn.example.net. 60 IN A 198.51.100.8
10.in-addr.arpa. 60 IN SOA ns.vpn.example.net. root.vpn.example.net. 1 3600 600 86400 60
4.3.2.10.in-addr.arpa. 60 IN PTR db.vpn.example.net.
`)
	n := newNode(t, generators("vpn.example.net", "svc.mesh.local"), "dns.upstreams="+up.addr).run()
	n.decided()
	virtual := n.ask("udp", "api.vpn.example.net", miekg.TypeA)
	for _, inside := range []bool{false, true, false} {
		if n.SetOrigins(nil); inside {
			origins := n.Origins(podNetwork{netip.MustParseAddrPort(vpn.addr)})
			defer origins.Close()
			n.SetOrigins(origins)
		}
		for _, c := range []struct {
			name          string
			qtype         uint16
			usual, inside string
		}{
			{"api.vpn.example.net", miekg.TypeA, virtual, virtual},
			{"api.vpn.example.net", miekg.TypeMX, "NOERROR", "NOERROR"},
			{"db.vpn.example.net", miekg.TypeA, "NXDOMAIN", "NOERROR 198.51.100.8"},
			{"none.vpn.example.net", miekg.TypeA, "NXDOMAIN", "NXDOMAIN"},
			{"vpn.example.net", miekg.TypeSOA, "NOERROR ns.vpn.example.net. hostmaster.vpn.example.net. 1 3600 600 86400 5",
				"NOERROR ns.vpn.example.net. root.vpn.example.net. 1 3600 600 86400 60"},
			{"4.3.2.10.in-addr.arpa", miekg.TypePTR, "NXDOMAIN", "NOERROR db.vpn.example.net."},
			{"1.0.0.127.in-addr.arpa", miekg.TypePTR, "NOERROR localhost.", "NOERROR localhost."},
			{"x.svc.mesh.local", miekg.TypeA, "NXDOMAIN", "NXDOMAIN"},
			{"x.onion", miekg.TypeA, "NXDOMAIN", "NXDOMAIN"},
		} {
			want := c.usual
			if inside {
				want = c.inside
			}
			if got := n.ask("udp", c.name, c.qtype); got != want {
				t.Errorf("%s, in another namespace %v: %q, want %q", c.name, inside, got, want)
			}
		}
	}
	for _, name := range []string{"x.svc.mesh.local", "x.onion", "api.vpn.example.net"} {
		if vpn.wasAsked(name) || up.wasAsked(name) {
			t.Errorf("%s was forwarded", name)
		}
	}
}

// TestForwardedDomains checks that names below the domains of dns.forward reach their upstreams,
// also reverse names of private addresses, and that a generator with such a suffix does not change
// this.
func TestForwardedDomains(t *testing.T) {
	up := newAuthority(t, "", "")
	corp := newAuthority(t, "", `
corp.example.net. 60 IN SOA ns.corp.example.net. root.corp.example.net. 1 3600 600 86400 60
db.corp.example.net. 60 IN A 198.51.100.9
2.10.in-addr.arpa. 60 IN SOA ns.corp.example.net. root.corp.example.net. 1 3600 600 86400 60
4.3.2.10.in-addr.arpa. 60 IN PTR db.corp.example.net.
`)
	n := newNode(t, generators("corp.example.net", "free.corp.example.net", "free.example.net"), "dns.upstreams="+up.addr,
		"dns.forward=[{domains: [corp.example.net, 2.10.in-addr.arpa], upstreams: ['"+corp.addr+"']}]").run()
	n.decided()
	for _, c := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{"db.corp.example.net", miekg.TypeA, "NOERROR 198.51.100.9"},
		{"db.other.mesh", miekg.TypeA, "NXDOMAIN"},
		{"4.3.2.10.in-addr.arpa", miekg.TypePTR, "NOERROR db.corp.example.net."},
		{"4.3.1.10.in-addr.arpa", miekg.TypePTR, "NXDOMAIN"},
		{"x.free.example.net", miekg.TypeA, "NXDOMAIN"},
		{"x.free.corp.example.net", miekg.TypeA, "NXDOMAIN"},
	} {
		if got := n.ask("udp", c.name, c.qtype); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	owned, why := n.ownership()
	if _, ok := owned["free.example.net"]; !ok || why["free.corp.example.net"] != "dns.forward lists corp.example.net" {
		t.Errorf("owned %v; %v", owned, why)
	}
	for name, want := range map[string]bool{
		"x.free.corp.example.net": true,
		"x.free.example.net":      false,
		"db.other.mesh":           false,
	} {
		if corp.wasAsked(name) != want || up.wasAsked(name) {
			t.Errorf("%s: the upstream of the domain was asked: %v", name, corp.wasAsked(name))
		}
	}
}
