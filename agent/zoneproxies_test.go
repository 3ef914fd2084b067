package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// zoneDocs returns a mesh with mTLS whose external traffic uses an egress, with services outside
// the mesh.
func zoneDocs(services ...string) string {
	var b strings.Builder
	b.WriteString("---\ntype: Mesh\nname: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n" +
		"routing: {zoneEgress: true}\n" +
		"---\ntype: ZoneEgress\nname: out\nnetworking: {address: 10.0.0.9, port: 10002}\n")
	for _, s := range services {
		name, address, _ := strings.Cut(s, "=")
		b.WriteString("---\ntype: ExternalService\nmesh: default\nname: " + name + "\ntags: {kuma.io/service: " + name +
			"}\nnetworking: {address: '" + address + "'}\n")
	}
	return b.String()
}

// TestEgressEnvoy checks that the Envoy of an egress receives its config from a running agent, that
// after that it receives only changes, also across a restart, and that it can be inspected.
func TestEgressEnvoy(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	file := filepath.Join(dir, "resources", "zone.yaml")
	agenttest.Write(t, file, zoneDocs("a=192.0.2.1:80", "b=192.0.2.2:80"))
	r := agenttest.Up(t, dir, agent.Deps{})
	versions := map[string]string{}
	s := r.Ask(&core.Node{Id: ".egress.out"}, nil)
	if got := agenttest.Next(t, s, versions); got != "default:a default:b" {
		t.Fatalf("first clusters: %q", got)
	}
	agenttest.Write(t, file, zoneDocs("a=192.0.2.1:80", "b=192.0.2.3:80"))
	if got := agenttest.Next(t, s, versions); got != "default:b" {
		t.Fatalf("after an address has changed: %q", got)
	}
	// A change of another proxy in the mesh does not affect the egress.
	agenttest.ByAPI(t, r.Store(), agenttest.DataplaneText("default", "web", "10.0.0.1"))
	agenttest.Write(t, file, zoneDocs("a=192.0.2.1:80"))
	if got := agenttest.Next(t, s, versions); got != "-default:b" {
		t.Fatalf("after a service went: %q", got)
	}

	p, err := r.Api().ZoneProxy(t.Context(), "zoneegresses", "out")
	if err != nil || p.Type != node.ProxyEgress || p.Mesh != "" || len(p.Clients) != 1 ||
		p.Clients[0].NodeID != ".egress.out" {
		t.Errorf("status of the egress: %+v, %v", p, err)
	}
	c, err := r.Api().ZoneConfig(t.Context(), "zoneegresses", "out")
	if err != nil || len(c.XDS[draft.TypeCluster]) != 1 || len(c.XDS[draft.TypeListener]) != 1 ||
		len(c.XDS[draft.TypeSecret]) != 2 {
		t.Errorf("config of the egress: %+v, %v", c, err)
	}
	if _, err := r.Api().ZoneConfig(t.Context(), "zoneegresses", "missing"); err == nil ||
		!strings.Contains(err.Error(), "ZoneEgress/missing does not exist") {
		t.Errorf("config of an egress that does not exist: %v", err)
	}
	all, err := r.Api().Proxies(t.Context())
	if err != nil || !slices.ContainsFunc(all.Items, func(p api.Proxy) bool {
		return p.Type == node.ProxyEgress && p.Name == "out"
	}) {
		t.Errorf("it is not among the proxies: %+v, %v", all, err)
	}
	if w, err := r.Api().Wait(t.Context(), api.Wait{Type: "ExternalService", Mesh: "default", Name: "a"}); err !=
		nil || w.State != api.StateApplied || w.Proxies != 1 {
		t.Errorf("waiting for a service that the egress leads to: %+v, %v", w, err)
	}
	agenttest.Do(t, r.Stop())

	r = agenttest.Up(t, dir, agent.Deps{})
	s = r.Ask(&core.Node{Id: ".egress.out"}, versions)
	agenttest.Write(t, file, zoneDocs("a=192.0.2.9:80"))
	if got := agenttest.Next(t, s, versions); got != "default:a" {
		t.Fatalf("first response after a restart: %q, want the change alone", got)
	}
}

// TestEgressProblems checks that problems of an egress are reported for the egress and affect no
// other proxy, and that an egress without a resource is unknown.
func TestEgressProblems(t *testing.T) {
	s := agenttest.Memory(t)
	agenttest.ByAPI(t, s, zoneDocs("a=192.0.2.1:80")+
		"---\ntype: ZoneEgress\nname: named\nnetworking: {address: egress.example.com, port: 10002}\n---\n"+
		agenttest.DataplaneText("default", "web", "10.0.0.1"))
	p := agenttest.NewPublisher(".egress.out", ".egress.named", ".egress.missing", ".ingress.out", "default.web", ".out")
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p})
	got := strings.Join(agenttest.Pass(r), "\n")
	for _, want := range []string{
		"error ZoneEgress/named: no new config can be computed, " +
			"so the proxy keeps its current one: ZoneEgress/named: networking.address: an egress cannot listen at",
		"warning ZoneEgress/named: networking.address: \"egress.example.com\" is not an IP address",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("problems: %s\nwant %s", got, want)
		}
	}
	for id, known := range map[string]bool{
		".egress.out":     true,
		"default.web":     true,
		".egress.missing": false,
		".ingress.out":    false,
		".out":            false,
	} {
		if sealed, ok := p.Has[id]; !ok || (sealed != nil) != known {
			t.Errorf("%s: published %v, config %v", id, ok, sealed != nil)
		}
	}
	before := p.Of(".egress.out")
	r.Pass()
	if p.Of(".egress.out") != before {
		t.Error("a pass without a change makes the config anew")
	}
	certificate := before.Resources[draft.Rank(draft.TypeSecret)]
	if len(certificate) != 2 || strings.Contains(string(certificate[0].Body()), "[made by the agent") {
		t.Errorf("the egress has no certificate of the mesh: %v", certificate)
	}
}
