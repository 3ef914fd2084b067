package names_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/dns/table"
)

// TestDomains checks that an external name has virtual addresses only for clients whose proxy
// intercepts connections to them. Workloads are recognized by their address. Other clients get the
// addresses only if all proxies of the node intercept them.
func TestDomains(t *testing.T) {
	const name = "db.example.com"
	const redirected = "  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}\n"
	const policy = "---\ntype: MeshPassthrough\nmesh: a\nname: p\nlabels: {nearside.io/dns-pinned: \"true\"}\nspec:\n" +
		"  targetRef: {kind: MeshSubset, tags: {kuma.io/service: x}}\n" +
		"  default: {passthroughMode: Matched, appendMatch: [{type: Domain, value: db.example.com, port: 5432, " +
		"protocol: tcp}]}\n"
	docs := "---\ntype: Mesh\nname: a\nnetworking: {outbound: {passthrough: false}}\n" +
		dataplane("a", "x", "10.0.0.1", "x", redirected) + dataplane("a", "y", "10.0.0.2", "y", redirected) +
		dataplane("a", "x-beside-y", "10.0.0.2", "x", redirected) + policy
	for _, c := range []struct {
		what   string
		local  []string
		tells  map[string]bool // whether a client with this address gets addresses; "" is any other client
		listed bool
	}{
		{"one of two", []string{"a/x", "a/y"}, map[string]bool{"10.0.0.1": true, "10.0.0.2": false, "": false}, true},
		{"all", []string{"a/x", "a/x-beside-y"}, map[string]bool{"10.0.0.1": true, "10.0.0.2": true, "": true}, true},
		{"two with one address", []string{"a/y", "a/x-beside-y"}, map[string]bool{"10.0.0.2": false, "": false}, true},
		{"none", []string{"a/y"}, map[string]bool{"10.0.0.2": false, "": false}, false},
		{"nobody", nil, map[string]bool{"": false}, false},
	} {
		w := newWorld(t)
		w.domains = []string{name}
		built := names.Build(usual, w.meshes(docs, c.local...), nil)
		if n := built.Find(name); (n != nil) != c.listed {
			t.Errorf("%s: it is listed: %v", c.what, n)
		} else if n != nil && (n.Resource.Name != "p" || n.Origin != "policy" || len(n.Addrs) != 2) {
			t.Errorf("%s: %+v", c.what, n.Hostname)
		}
		if repeated := names.Build(usual, w.meshes(docs, c.local...), built); repeated != built {
			t.Errorf("%s: another table of the same", c.what)
		}
		answers, faults := table.New(table.Options{Suffixes: built.OwnedSuffixes()}, built.Hosts())
		if faults != nil {
			t.Fatal(faults)
		}
		for addr, want := range c.tells {
			v := built.OthersView()
			if addr != "" {
				if own := built.View(netip.MustParseAddr(addr)); own != nil {
					v = own
				}
			}
			as := v.DNS()
			got, _, err := answers.Lookup(name, table.TypeA, as)
			if err != nil || (got == table.OutcomeRecords) != want || !want && got != table.OutcomeForwarded {
				t.Errorf("%s, client %q: %v %v", c.what, addr, got, err)
			}
			if got, _, _ := answers.Lookup("y.mesh", table.TypeA, as); got != table.OutcomeRecords {
				t.Errorf("%s, client %q: y.mesh is %v", c.what, addr, got)
			}
		}
	}
	w := newWorld(t)
	before := names.Build(usual, w.meshes(docs, "a/x"), nil)
	w.domains = []string{name}
	after := names.Build(usual, w.meshes(docs, "a/x"), before)
	if before.Find(name) != nil || after.Find(name) == nil {
		t.Error("a table that follows another one does not have the name that came")
	}
}

// TestSuffixesOffline checks which suffixes an offline command considers owned, and that the number
// of suffixes that depend on upstreams is limited.
func TestSuffixesOffline(t *testing.T) {
	docs := aMesh("a")
	for i := range names.MaxAsked + 2 {
		docs += generator(fmt.Sprintf("g%02d", i), fmt.Sprintf("{{ .DisplayName }}.s%02d.example.org", i))
	}
	docs += generator("h", "{{ .DisplayName }}.svc.mesh") + generator("a", "{{ .DisplayName }}.svc.test")
	built := names.Build(usual, newWorld(t).meshes(docs), nil)
	reason := map[string]string{}
	for _, s := range built.Unowned {
		reason[s.Name] = s.Reason
	}
	if got := reason["s00.example.org"]; !strings.HasPrefix(got, "only an agent asks upstreams") {
		t.Errorf("offline: %q", got)
	}
	if got := reason["s65.example.org"]; got !=
		"upstreams are asked about at most 64 suffixes: list it in dns.suffixes if it is yours" {
		t.Errorf("beyond the limit: %q", got)
	}
	if got := built.Asked(); len(got) != names.MaxAsked {
		t.Errorf("%d suffixes are asked about", len(got))
	}
	for _, s := range []string{"svc.mesh", "svc.test"} {
		if !slices.Contains(built.OwnedSuffixes(), s) {
			t.Errorf("%s is not owned: %s", s, reason[s])
		}
	}
	o := usual
	o.Forwarded = []string{"test", "example.org"}
	built = names.Build(o, newWorld(t).meshes(docs), built)
	if got := built.Asked(); len(got) != 0 || slices.Contains(built.OwnedSuffixes(), "svc.test") {
		t.Errorf("below forwarded domains: %q, %q", got, built.OwnedSuffixes())
	}
}
