package explaindns_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// TestExplanationsAgree checks for every dataplane and name of the inputs in the repository that
// explain dns and explain connection give the same answer about the name.
func TestExplanationsAgree(t *testing.T) {
	asked := 0
	for _, in := range kindtest.OwnInputs(t) {
		asked += agree(t, in, false) + agree(t, in, true)
	}
	t.Logf("%d questions", asked)
	if asked < 1000 {
		t.Errorf("%d questions were asked, want at least 1000", asked)
	}
}

// TestReferenceExplanationsAgree does the same with the reference cases.
func TestReferenceExplanationsAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of questions")
	}
	for _, in := range kindtest.ConformanceInputs(t) {
		agree(t, in, false)
	}
}

// TestHostOfExternalService checks that both explanations use the virtual address of an
// ExternalService's host, for the ports of all its ExternalServices, unless the resource disables
// it or the proxy of the client does not serve it.
func TestHostOfExternalService(t *testing.T) {
	const docs = `
{type: Mesh, name: default, networking: {outbound: {passthrough: false}}}
---
type: Dataplane
mesh: default
name: web
networking:
  address: 192.0.2.1
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001REACH}
  inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
---
type: ExternalService
mesh: default
name: pay
tags: {kuma.io/service: pay, kuma.io/protocol: http}
networking: {address: "Pay.acme.test:80"}
---
type: ExternalService
mesh: default
name: pay-admin
tags: {kuma.io/service: pay-admin, kuma.io/protocol: http}
networking: {address: "pay.acme.test:8443"}
`
	const own = ": use that name instead of permitting an external host"
	for _, tc := range []struct {
		what, old, new, dns string
		flows               map[string]string // by target: verdict and the end of the reason
	}{
		{"served", "REACH", "", explaindns.DNSResolves, map[string]string{
			"pay.acme.test:8443": "allowed: forwarded to cluster pay-admin",
			"pay.acme.test:80":   "allowed: forwarded to cluster pay",
			"pay.acme.test:443": "closed: port 443 of the virtual address of pay.acme.test is not in use; " +
				"available ports: 80, 8443",
			"pay-admin.mesh:8443": "allowed: forwarded to cluster pay-admin",
			"pay.acme.mesh:80":    "unknown host: no service of the mesh default has the name pay.acme.mesh"}},
		{"disabled", `test:80"`, `test:80", disableHostDNSEntry: true`, explaindns.DNSResolves, map[string]string{
			"pay.acme.test:8443": "allowed: forwarded to cluster pay-admin",
			// The host is one service, which also has port 80.
			"pay.acme.test:80": "allowed: forwarded to cluster pay-admin"}},
		{"all disabled", `"}`, `", disableHostDNSEntry: true}`, explaindns.DNSForwarded, map[string]string{
			"pay.acme.test:8443": "closed: the mesh has pay-admin as pay-admin.mesh:8443" + own,
			"pay.acme.test:80":   "closed: the mesh has pay as pay.mesh:80" + own}},
		{"not reachable", "REACH", ", reachableServices: [other]", explaindns.DNSForwarded, map[string]string{
			"pay.acme.test:8443": "closed: "}},
	} {
		docs := strings.ReplaceAll(strings.ReplaceAll(docs, tc.old, tc.new), "REACH", "")
		in := kindtest.InputOf(t, "external host", []byte(docs))
		agree(t, in, true)
		meshes := meshesOf(t, in)
		traffic := explain.NewTraffic(meshes["default"])
		for to, want := range tc.flows {
			verdict, reason, _ := strings.Cut(want, ": ")
			flow, err := traffic.Request(&explain.RequestQuestion{Target: explain.Target{From: "web", To: to}})
			if err != nil || flow.Verdict != verdict || !strings.Contains(flow.Reason, reason) || flow.Suggest != "" {
				t.Errorf("%s: %s: %v: %s: %s, want %s", tc.what, to, err, flow.Verdict, flow.Reason, want)
			}
		}
		table := names.Build(names.DefaultOptions(), listOf(meshes, meshes["default"].View.Dataplane("web")), nil)
		dns, err := explaindns.Name(explaindns.DNSInput{Resolver: explaindns.Resolver{Table: table}, Meshes: meshes},
			&explain.DNSQuestion{Name: "pay.acme.test", Dataplane: "web"})
		if err != nil || dns.Verdict != tc.dns {
			t.Errorf("%s: %v: %+v, want %s", tc.what, err, dns, tc.dns)
		}
	}
}

// agree asks both explanations about the names of an input, and returns the number of questions.
// reachableOnly hides names of services that a dataplane does not reach.
func agree(t *testing.T, in kindtest.MeshInput, reachableOnly bool) (asked int) {
	t.Helper()
	meshes := meshesOf(t, in)
	for _, name := range slices.Sorted(maps.Keys(meshes)) {
		m := meshes[name]
		for _, dp := range m.View.Dataplanes() {
			options := names.DefaultOptions()
			options.ReachableOnly = reachableOnly
			table := names.Build(options, listOf(meshes, dp), nil)
			traffic := explain.NewTraffic(m)
			traffic.Names = func(string) *names.Table { return table }
			for _, host := range hostsOf(m, table) {
				dns, err := explaindns.Name(explaindns.DNSInput{Resolver: explaindns.Resolver{Table: table}, Meshes: meshes},
					&explain.DNSQuestion{Name: host + ".", Mesh: name, Dataplane: dp.Name})
				if err != nil {
					continue // both refuse it
				}
				flow, err := traffic.Connection(&explain.ConnectionQuestion{Target: explain.Target{Mesh: name, From: dp.Name,
					To: host + ":80"}})
				if err != nil {
					break // the dataplane has no config
				}
				asked++
				if reason := contradiction(dns, flow, host); reason != "" {
					t.Errorf("%s: %s asks for %s: %s\nexplain dns: %s: %s\nexplain connection: %s: %s (%s)", in.Name, dp.Key, host,
						reason, dns.Verdict, dns.Reason, flow.Verdict, flow.Reason, flow.Address)
				}
			}
		}
	}
	return asked
}

// contradiction says how two answers about a name contradict each other; "" if they do not.
func contradiction(dns *explaindns.DNS, flow *explain.Flow, host string) string {
	dialled := netip.AddrPort{}
	if at, err := netip.ParseAddrPort(flow.Address); err == nil {
		dialled = at
	}
	var addrs []string
	for _, r := range dns.Steps[len(dns.Steps)-1].Records {
		if r.Type == "A" || r.Type == "AAAA" {
			addrs = append(addrs, r.Data)
		}
	}
	unknown := netip.MustParsePrefix("192.0.2.0/24").Contains(dialled.Addr())
	switch dns.Verdict {
	case explaindns.DNSResolves:
		if len(addrs) > 0 && !slices.Contains(addrs, dialled.Addr().String()) {
			return "the workload dials another address than it resolves"
		}
	case explaindns.DNSForwarded:
		// A name of one label may be the name of a service.
		if strings.Contains(host, ".") && !unknown {
			return "upstreams decide, but the address is known"
		}
	default:
		if flow.Verdict == explain.VerdictAllowed {
			return "the name has no address, but the connection is allowed"
		}
	}
	return ""
}

// hostsOf returns names to ask for: those of the table, services with and without a suffix, hosts
// outside the mesh, and unknown names.
func hostsOf(m *generate.Mesh, table *names.Table) []string {
	hosts := map[string]bool{"unknown": true, "unknown.mesh": true, "www.example.com": true, names.Canary: true}
	for _, n := range table.Names {
		hosts[n.Name], hosts["below."+n.Name] = true, true
	}
	for _, s := range m.View.Services() {
		for _, n := range []string{s.ID.Name, s.Tag, s.Resource.Name} {
			hosts[n], hosts[n+".mesh"], hosts[n+".example.com"] = n != "", n != "", n != ""
		}
		if s.Outside != nil {
			for i := range s.Outside.List {
				hosts[s.Outside.List[i].Address] = true
			}
		}
	}
	var out []string
	for host, ask := range hosts {
		if _, err := netip.ParseAddr(host); ask && err != nil && host == strings.ToLower(host) {
			out = append(out, host)
		}
	}
	slices.Sort(out)
	return out
}

func meshesOf(t *testing.T, in kindtest.MeshInput) map[string]*generate.Mesh {
	t.Helper()
	out := map[string]*generate.Mesh{}
	set := resource.NewSet(in.Resources)
	for _, r := range set.Kind("Mesh") {
		m, err := generate.NewMesh(set, r.Name, mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
		if err != nil {
			t.Fatalf("%s: %v", in.Name, err)
		}
		out[r.Name] = m
	}
	return out
}

func listOf(meshes map[string]*generate.Mesh, local *resource.Resource) (out []names.Mesh) {
	for name, m := range meshes {
		x := names.Mesh{View: m.View, Policies: m.Policies}
		if name == local.Mesh {
			x.Local = []string{local.Name}
		}
		out = append(out, x)
	}
	return out
}
