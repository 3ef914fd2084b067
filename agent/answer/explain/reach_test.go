package explain_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
)

// transparent is a mesh in which permissions restrict what web reaches, and web lists service
// resources.
const transparent = `type: Mesh
name: default
labels: {nearside.io/auto-reachable-backends: "true"}
meshServices: {mode: Everywhere}
mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 80, tags: {kuma.io/service: web}}]
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, reachableBackends: {refs: [{kind: MeshService, name: db}, {kind: MeshService, name: queue}]}}
---
{type: Dataplane, mesh: default, name: db-1, networking: {address: 10.0.0.2, inbound: [{port: 5432, tags: {kuma.io/service: db}}]}}
---
{type: Dataplane, mesh: default, name: q-1, networking: {address: 10.0.0.3, inbound: [{port: 5672, tags: {kuma.io/service: queue}}], transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}}}
`

// TestReach checks the reason why each service is reachable or not, grouped and per service.
func TestReach(t *testing.T) {
	m := meshOf(t, transparent+permission("p", "{kind: MeshService, name: db}", "{kind: MeshService, name: web}", "Allow")+
		permission("q", "{kind: MeshService, name: queue}", "{kind: Mesh}", "Deny"))
	p, err := explain.NewProxy(m.Policies, m.View.Dataplane("web"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := p.Reach("queue", nil)
	var got []string
	for _, g := range r.Groups {
		got = append(got, g.Examples[0].String()+": "+g.Reason)
	}
	want := []string{
		"db: allowed by MeshTrafficPermission/p spec.from[0]",
		"MeshService/db:5432: listed in networking.transparentProxying.reachableBackends.refs[0]",
		"MeshService/queue:5672: listed in networking.transparentProxying.reachableBackends.refs[1]",
		"web: no permission allows the dataplane",
		"queue: denied by MeshTrafficPermission/q spec.from[0]",
		"MeshService/web:80: not listed in networking.transparentProxying.reachableBackends.refs, which has 2 entries",
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(got, "\n"), w) {
			t.Errorf("%s is missing in\n%s", w, strings.Join(got, "\n"))
		}
	}
	if len(got) != len(want) || r.Total != 6 || r.Reachable != 3 || !r.Auto || len(r.Items) != 2 || r.Items[0].Reachable ||
		!r.Items[1].Reachable {
		t.Errorf("%+v", r)
	}
	if by := p.Reach("", m.Policies.Policies("MeshTrafficPermission")[0]); len(by.Groups) != 1 || by.Groups[0].Count != 1 {
		t.Errorf("groups of one policy: %+v", by.Groups)
	}
}

// TestDialUnreachable explains connections to services that are not in the proxy's config.
func TestDialUnreachable(t *testing.T) {
	const listed = "reachableBackends: {refs: [{kind: MeshService, name: db}, {kind: MeshService, name: queue}]}"
	for ask, c := range map[string]struct{ mode, lists, reason, suggest string }{
		"connection db:5432": {"Exclusive", "",
			"the dataplane does not reach MeshService/db:5432: no permission allows the dataplane",
			"targetRef: {kind: MeshService, name: db}\n  from:\n  - targetRef: {kind: MeshService, name: web}"},
		"connection queue:5672": {"Exclusive", "reachableServices: [db]",
			"the dataplane does not reach MeshService/queue:5672: the dataplane has only " +
				"networking.transparentProxying.reachableServices and no reachableBackends; to reach it, " +
				"add {kind: MeshService, name: queue, port: 5672} to networking.transparentProxying.reachableBackends.refs", ""},
		"connection web.mesh:1": {"Disabled", "reachableServices: [db]",
			"the dataplane does not reach web: not listed in networking.transparentProxying.reachableServices, " +
				"which has 1 entry; to reach it, add web to networking.transparentProxying.reachableServices", ""},
	} {
		docs := strings.Replace(transparent, "mode: Everywhere", "mode: "+c.mode, 1)
		docs = strings.Replace(docs, ", "+listed, strings.TrimSuffix(", "+c.lists, ", "), 1)
		flow, err := question(t, ask).ask(explain.NewTraffic(meshOf(t, docs)))
		if err != nil {
			t.Fatal(err)
		}
		if flow.Verdict == explain.VerdictAllowed || flow.Reason != c.reason || !strings.Contains(flow.Suggest, c.suggest) ||
			(c.suggest == "") != (flow.Suggest == "") {
			t.Errorf("%s: %s: %s\n%s", ask, flow.Verdict, flow.Reason, flow.Suggest)
		}
		if flow.Suggest != "" {
			if then, err := question(t, ask).ask(explain.NewTraffic(meshOf(t, docs+"---\n"+flow.Suggest))); err != nil ||
				then.Verdict != explain.VerdictAllowed {
				t.Errorf("with the change: %v %v", then, err)
			}
		}
	}
}

// TestReachedOutbounds checks that a policy lists only outbounds that the proxy has.
func TestReachedOutbounds(t *testing.T) {
	docs := strings.Replace(transparent, "refs: [{kind: MeshService, name: db}, {kind: MeshService, name: queue}]",
		"refs: []", 1)
	m := meshOf(t, docs+permission("p", "{kind: MeshService, name: db}", "{kind: MeshService, name: web}", "Allow")+
		"---\n{type: MeshTimeout, mesh: default, name: t, spec: {to: [{targetRef: {kind: Mesh}, "+
		"default: {connectionTimeout: 3s}}]}}\n")
	p, err := explain.NewProxy(m.Policies, m.View.Dataplane("web"), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.WithEffects(effect.New(m, effect.Question(kinds.Registry().DecodeOne)))
	got := p.Policy(m.Policies.Policies("MeshTimeout")[0])
	if len(got.Outbounds) != 1 || got.Outbounds[0].String() != "db" || len(got.Items) != 1 ||
		len(got.Items[0].Places) != 1 || len(got.Items[0].Places[0].Outbounds) != 1 {
		t.Errorf("%+v; want only db, which the permission allows", got)
	}
}

// TestReachOrder checks that groups that compare equal have a stable order: web reaches as many
// kuma.io/service values as MeshServices, both without restriction.
func TestReachOrder(t *testing.T) {
	docs := strings.Replace(transparent, `labels: {nearside.io/auto-reachable-backends: "true"}`+"\n", "", 1)
	docs = strings.Replace(docs,
		", reachableBackends: {refs: [{kind: MeshService, name: db}, {kind: MeshService, name: queue}]}", "", 1)
	m := meshOf(t, docs)
	for range 30 {
		p, err := explain.NewProxy(m.Policies, m.View.Dataplane("web"), nil)
		if err != nil {
			t.Fatal(err)
		}
		groups := p.Reach("", nil).Groups
		if len(groups) != 2 || groups[0].Reason != groups[1].Reason || groups[0].Examples[0].String() != "db" {
			t.Fatalf("%+v; want the group with db first, then MeshService/db", groups)
		}
	}
}
