package names_test

import (
	"net/netip"
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
