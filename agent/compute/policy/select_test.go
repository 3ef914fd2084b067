package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestSelect checks every kind of top-level targetRef: what it selects, and the reason if it
// selects nothing.
func TestSelect(t *testing.T) {
	x := index(t, `
{type: MeshService, name: backend-real, labels: {app: b}, spec: {selector: {dataplaneTags: {kuma.io/service: backend}}, ports: [{port: 80, name: main}, {port: 90, targetPort: 91}]}}
---
{type: MeshService, name: in-zone, spec: {selector: {dataplaneLabels: {matchLabels: {kuma.io/zone: default, kuma.io/env: universal}}}, ports: [{port: 80}]}}
---
{type: MeshService, name: elsewhere, spec: {selector: {dataplaneLabels: {matchLabels: {kuma.io/zone: east}}}, ports: [{port: 80}]}}
---
{type: MeshHTTPRoute, name: route, spec: {targetRef: {kind: MeshService, name: web}, to: [{targetRef: {kind: MeshService, name: backend}, names: [r1]}]}}
---
`)
	to := "to: [{targetRef: {kind: Mesh}, default: {a: x}}]"
	from := "from: [{targetRef: {kind: Mesh}, default: {a: x}}]"
	for _, c := range []struct {
		target, rest, dataplane string
		inbounds                string // what is selected: "0 1", "gateway", or "proxy" for only the proxy
		why                     string
	}{
		{"{kind: Mesh}", to, "web", "0 1", ""},
		{"{kind: Mesh}", to, "gw", "gateway", ""},
		{"{kind: Mesh}", to, "bare", "proxy", ""},
		{"{kind: Mesh, name: default}", to, "web", "0 1", ""},
		{"{kind: Mesh, name: other}", to, "web", "", `mesh "other"`},
		{"{kind: Mesh, proxyTypes: [Gateway]}", to, "web", "", "type Gateway"},
		{"{kind: Mesh, proxyTypes: [Gateway]}", to, "gw", "gateway", ""},
		{"{kind: MeshSubset, tags: {version: v1}}", to, "web", "0", ""},
		{"{kind: MeshSubset, tags: {version: v2}}", to, "web", "", "the tag version is v1, and the policy requires v2"},
		{"{kind: MeshSubset, tags: {kuma.io/zone: default}}", to, "web", "0 1", ""},
		{"{kind: MeshSubset, tags: {nope: x}}", to, "web", "", "no such tag"},
		{"{kind: MeshSubset, tags: {version: v1}}", to, "gw", "gateway", ""},
		{"{kind: MeshService, name: web}", to, "web", "0", ""},
		{"{kind: MeshService, name: backend-real}", to, "backend-1", "0", ""},
		{"{kind: MeshService, name: backend, tags: {version: v2}}", to, "backend-2", "0", ""},
		{"{kind: MeshService, name: backend, tags: {version: v2}}", to, "backend-1", "", "the tag version is v1"},
		{"{kind: MeshService, labels: {app: b}}", to, "backend-2", "0", ""},
		{"{kind: MeshService, name: backend-real, sectionName: main}", to, "backend-2", "0", ""},
		{"{kind: MeshService, name: backend-real, sectionName: '90'}", to, "backend-2", "", "section"},
		{"{kind: MeshService, name: in-zone}", to, "web", "0 1", ""},
		{"{kind: MeshService, name: elsewhere}", to, "web", "", "none of its inbounds"},
		{"{kind: MeshServiceSubset, name: backend, tags: {version: v2}}", to, "backend-2", "0", ""},
		{"{kind: MeshServiceSubset, name: backend, tags: {version: v2}}", to, "backend-1", "", "the tag version is v1"},
		{"{kind: Dataplane}", to, "web", "0 1", ""},
		{"{kind: Dataplane, name: web}", to, "web", "0 1", ""},
		{"{kind: Dataplane, name: web}", to, "gw", "", `dataplane "web"`},
		{"{kind: Dataplane, labels: {team: front}}", to, "web", "0 1", ""},
		{"{kind: Dataplane, labels: {team: back}}", to, "web", "", `label team is "front", and the policy requires "back"`},
		{"{kind: Dataplane, name: web, sectionName: main}", to, "web", "0", ""},
		{"{kind: Dataplane, name: web, sectionName: '81'}", to, "web", "1", ""},
		{"{kind: Dataplane, name: web, sectionName: nope}", to, "web", "", `"nope"`},
		{"{kind: MeshGateway, name: edge}", to, "gw", "", "delegated"},
		{"{kind: MeshHTTPRoute, name: route}", to, "web", "0", ""},
		{"{kind: MeshHTTPRoute, labels: {kuma.io/zone: default}}", to, "web", "0", ""},
		{"{kind: MeshHTTPRoute, name: route}", to, "backend-1", "", "does not apply"},
		{"{kind: MeshHTTPRoute, name: route}", from, "backend-1", "0", ""},
		{"{kind: MeshHTTPRoute, name: route}", from, "web", "", "does not apply"},
		{"{kind: MeshHTTPRoute, name: nope}", to, "web", "", `MeshHTTPRoute "nope" does not exist`},
	} {
		p := decode(t, mesht("p", c.target, c.rest))[0]
		s := x.Select(p, x.View.Dataplane(c.dataplane))
		got := strings.Trim(fmt.Sprint(s.Inbounds), "[]")
		if s.Gateway {
			got = "gateway"
		} else if got == "" && s.Proxy {
			got = "proxy"
		}
		if got != c.inbounds || !strings.Contains(s.Why, c.why) || (c.why == "") != (s.Why == "") {
			t.Errorf("%s with %.5s on %s: got %q (%q), want %q (%q)", c.target, c.rest, c.dataplane, got, s.Why,
				c.inbounds, c.why)
		}
	}
}

// TestNamespaces checks that a consumer's policy applies only to its namespace, and a producer's to
// all.
func TestNamespaces(t *testing.T) {
	x := index(t, "{type: Dataplane, name: mine.team-a, labels: {k8s.kuma.io/namespace: team-a}, "+
		"networking: {address: 10.0.1.1, inbound: [{port: 80, tags: {kuma.io/service: mine}}]}}\n---\n")
	for role, want := range map[string]string{
		"consumer":       "mine.team-a",
		"workload-owner": "mine.team-a",
		"producer":       "mine.team-a web",
		"system":         "mine.team-a web",
	} {
		p := decode(t, "{type: MeshT, name: p.team-a, labels: {k8s.kuma.io/namespace: team-a, kuma.io/policy-role: "+role+
			"}, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {a: x}}]}}")[0]
		var got []string
		for _, name := range []string{"mine.team-a", "web"} {
			if x.Select(p, x.View.Dataplane(name)).Proxy {
				got = append(got, name)
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: selects %q, want %q", role, s, want)
		}
	}
	// Policies without a namespace select nothing if their role requires one.
	for role, want := range map[string]bool{"consumer": false, "workload-owner": false, "producer": true, "system": true} {
		p := decode(t, "{type: MeshT, name: p, labels: {kuma.io/policy-role: "+role+
			"}, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {a: x}}]}}")[0]
		for _, name := range []string{"mine.team-a", "web"} {
			if s := x.Select(p, x.View.Dataplane(name)); s.Proxy != want || (s.Why == "") != want {
				t.Errorf("%s without a namespace on %s: selects %v (%q), want %v", role, name, s.Proxy, s.Why, want)
			}
		}
	}
}

// TestServicesOfNamespace checks that an item with a namespace and no name applies to all services
// of the namespace.
func TestServicesOfNamespace(t *testing.T) {
	x := index(t, "{type: MeshService, name: a.shop, labels: {k8s.kuma.io/namespace: shop, kuma.io/display-name: a}, "+
		"spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80}, {port: 81}]}}\n---\n"+
		"{type: MeshService, name: b.shop, labels: {k8s.kuma.io/namespace: shop, kuma.io/display-name: b}, "+
		"spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80}]}}\n---\n"+
		"{type: MeshService, name: c.other, labels: {k8s.kuma.io/namespace: other, kuma.io/display-name: c}, "+
		"spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80}]}}\n---\n")
	for section, want := range map[string]string{"": "a.shop b.shop", "81": "a.shop", "82": ""} {
		p := decode(t, "{type: MeshT, name: p, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, "+
			"namespace: shop}, default: {a: x}}]}}")[0]
		var got []string
		for _, k := range x.Resolve(p, &resource.TargetRef{Kind: "MeshService", Namespace: "shop", SectionName: section}) {
			got = append(got, k.Name)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("section %q: %q, want %q", section, s, want)
		}
	}
}

// TestOwnersLast checks that policies of the workload's owner override those of the consumer, and
// these override those of the producer, regardless of names.
func TestOwnersLast(t *testing.T) {
	doc := "{type: Dataplane, name: mine.team-a, labels: {k8s.kuma.io/namespace: team-a}, " +
		"networking: {address: 10.0.1.1, inbound: [{port: 80, tags: {kuma.io/service: mine}}]}}\n---\n"
	for name, role := range map[string]string{"a": "producer", "b": "consumer", "c": "workload-owner"} {
		doc += "{type: MeshT, name: " + name + ".team-a, labels: {k8s.kuma.io/namespace: team-a, kuma.io/policy-role: " +
			role + "}, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {a: " + name + "}}]}}\n---\n"
	}
	const want = `{} {"a":"c"} a.team-a[0] b.team-a[0] c.team-a[0]`
	if got := show(rulesOf(t, index(t, doc), "mine.team-a", "MeshT").To); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
