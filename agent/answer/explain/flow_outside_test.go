package explain_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/names"
)

// TestPermissionsOutside checks explanations of destinations outside the mesh that permissions
// deny, with the deciding policies and a suggestion.
func TestPermissionsOutside(t *testing.T) {
	const api = "---\n{type: ExternalService, mesh: default, name: es, tags: {kuma.io/service: nothing, " +
		"kuma.io/protocol: http}, networking: {address: 'api.example.com:443'}}\n"
	const legacy = "---\n{type: TrafficPermission, mesh: default, name: old, " +
		"sources: [{match: {kuma.io/service: other}}], destinations: [{match: {kuma.io/service: nothing}}]}\n"
	through := strings.NewReplacer("type: builtin}]}", "type: builtin}]}\nrouting: {zoneEgress: true}").Replace(secured) +
		"---\n{type: ZoneEgress, name: out, networking: {address: 10.0.0.9, port: 10002}}\n"
	for _, tc := range []struct{ name, docs, verdict, reason, suggest string }{
		{"no permission", "", "denied", "no permission allows web to use it, so its proxy has no endpoint for it",
			"targetRef: {kind: MeshService, name: nothing}\n  from:\n  - targetRef: {kind: MeshService, name: web}\n"},
		{"others allowed", permission("p", "{kind: MeshService, name: nothing}", "{kind: MeshService, name: other}", "Allow"),
			"denied", "decided by: MeshTrafficPermission/default/p spec.from", "name: allow-web-to-nothing"},
		{"all are denied", permission("p", "{kind: Mesh}", "{kind: Mesh}", "Deny"),
			"denied", "decided by: MeshTrafficPermission/default/p spec.from", "name: allow-web-to-nothing"},
		{"legacy, others are allowed", legacy, "denied", "decided by: TrafficPermission/default/old sources",
			"sources:\n- match: {kuma.io/service: other}\n- match: {kuma.io/service: web}\n"},
		{"all are allowed", permission("p", "{kind: Mesh}", "{kind: Mesh}", "Allow"), "allowed", "", ""},
	} {
		for _, mesh := range []string{secured, through} {
			flow, err := question(t, "request 127.0.0.1:10003").ask(explain.NewTraffic(meshOf(t, mesh+api+tc.docs)))
			if err != nil {
				t.Fatal(err)
			}
			if flow.Verdict != tc.verdict || !strings.Contains(flow.Reason, tc.reason) ||
				!strings.Contains(flow.Suggest, tc.suggest) || (tc.suggest == "") != (flow.Suggest == "") {
				t.Errorf("%s: %s: %s\n%s", tc.name, flow.Verdict, flow.Reason, flow.Suggest)
			}
		}
	}
	forbidden := strings.Replace(through, "zoneEgress: true",
		"zoneEgress: true, defaultForbidMeshExternalServiceAccess: true", 1)
	forbidden = strings.Replace(forbidden, "{port: 10003, tags: {kuma.io/service: nothing}}",
		"{port: 10003, backendRef: {kind: MeshExternalService, name: real, port: 443}}", 1)
	const real = "---\n{type: MeshExternalService, mesh: default, name: real, spec: {match: {port: 443, protocol: tcp}, " +
		"endpoints: [{address: 192.0.2.1, port: 7}]}}\n"
	flow, err := question(t, "connection 127.0.0.1:10003").ask(explain.NewTraffic(meshOf(t, forbidden+real)))
	if err != nil || flow.Verdict != "closed" ||
		!strings.Contains(flow.Reason, "Mesh/default routing.defaultForbidMeshExternalServiceAccess") || flow.Suggest != "" {
		t.Errorf("%v: %s: %s\n%s", err, flow.Verdict, flow.Reason, flow.Suggest)
	}
}

// TestMeshNamesAreNotLetOut checks that names of meshes are never suggested as external domains.
func TestMeshNamesAreNotLetOut(t *testing.T) {
	const more = "---\n{type: MeshPassthrough, mesh: default, name: p, spec: {default: {passthroughMode: None}}}\n" +
		"---\n{type: HostnameGenerator, name: g, spec: {selector: {meshService: {matchLabels: {kuma.io/service: queue}}}, " +
		"template: '{{ .DisplayName }}.svc.example.com'}}\n" +
		"---\n{type: MeshService, mesh: default, name: queue, labels: {kuma.io/service: queue}, " +
		"spec: {selector: {dataplaneTags: {kuma.io/service: queue}}, ports: [{port: 5672, targetPort: 5672}]}}\n"
	docs := strings.Replace(transparent, "mode: Everywhere", "mode: Exclusive", 1)
	docs = strings.Replace(docs, ", {kind: MeshService, name: queue}", "", 1) + more
	m := meshOf(t, docs)
	traffic := explain.NewTraffic(m)
	table := names.Build(names.Options{Suffixes: []string{"mesh", "corp.example"}, Generators: true,
		Evidence: map[string]names.Evidence{"svc.example.com": names.HasNone}},
		[]names.Mesh{{View: m.View, Policies: m.Policies}}, nil)
	traffic.Names = func(string) *names.Table { return table }
	for ask, want := range map[string]string{
		"connection queue.svc.example.com:443 tls ip=203.0.113.5": "queue.svc.example.com is a name of " +
			"MeshService/queue:5672 in the mesh default, which the dataplane does not reach: not listed in " +
			"networking.transparentProxying.reachableBackends",
		"connection 203.0.113.5:443 sni=Queue.svc.example.com": "is a name of MeshService/queue:5672 in the mesh default",
		"connection queue.mesh:5672 ip=203.0.113.5": "no service of the mesh default has the name queue.mesh, " +
			"and names below mesh are reserved for meshes; the mesh has MeshService/queue:5672 as queue.svc.example.com:5672",
		"connection 203.0.113.5:443 sni=nobody.mesh": "no service of the mesh default has the name nobody.mesh, " +
			"and names below mesh are reserved for meshes",
		"connection 203.0.113.5:443 sni=nobody.svc.example.com": "names below svc.example.com are reserved for meshes",
		"request db.mesh:80 ip=203.0.113.5":                     "no service of the mesh default has the name db.mesh",
		"request 203.0.113.5:80 host=nobody.corp.example":       "names below corp.example are reserved for meshes",
		"request elsewhere.example:80 ip=203.0.113.5":           "",
		"connection 203.0.113.5:443 sni=corp.example.com":       "",
		"connection 203.0.113.5:443 sni=nobody.mesh.example":    "",
	} {
		flow, err := question(t, ask).ask(traffic)
		if err != nil {
			t.Fatal(err)
		}
		if flow.Verdict == explain.VerdictAllowed || !strings.Contains(flow.Reason, want) ||
			(flow.Suggest == "") != (want != "") {
			t.Errorf("%s: %s: %s\n%s", ask, flow.Verdict, flow.Reason, flow.Suggest)
		}
	}
}
