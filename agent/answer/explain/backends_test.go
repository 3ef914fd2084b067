package explain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
)

const callable = `type: Mesh
name: default
meshServices: {mode: Everywhere}
%s
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 80, tags: {kuma.io/service: web, team: a}}]
  outbound: [{port: 7000, tags: {kuma.io/service: db}}]
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001%s}
---
{type: Dataplane, mesh: default, name: db-1, networking: {address: 10.0.0.2, inbound: [{port: 5432, tags: {kuma.io/service: db, version: v1}}]}}
---
{type: Dataplane, mesh: default, name: q-1, networking: {address: 10.0.0.3, inbound: [{port: 5672, tags: {kuma.io/service: queue}}]}}
---
apiVersion: kuma.io/v1alpha1
kind: MeshService
mesh: default
metadata: {name: db, namespace: shop}
spec:
  selector: {dataplaneTags: {kuma.io/service: db}}
  ports: [{port: 5432}, {port: 5433, targetPort: 5432}]
---
type: MeshExternalService
mesh: default
name: pay
spec: {match: {type: HostnameGenerator, port: 443, protocol: tls}, endpoints: [{address: 192.0.2.1, port: 443}]}
`

const mutual = "mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}"

func backendsOf(t *testing.T, docs string) map[string]explain.CallableBackend {
	t.Helper()
	b, err := explain.ProxyBackends(meshOf(t, docs), "web")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]explain.CallableBackend{}
	for _, x := range b.Items {
		out[x.Destination.String()] = x
	}
	if len(out) != b.Total {
		t.Errorf("%d items, %d names", b.Total, len(out))
	}
	return out
}

// TestBackends checks which services a proxy may call, which permission decides, and how to list
// them.
func TestBackends(t *testing.T) {
	legacy := func(name, source, destination string) string {
		return fmt.Sprintf("---\n{type: TrafficPermission, mesh: default, name: %s, sources: [{match: %s}], "+
			"destinations: [{match: %s}]}\n", name, source, destination)
	}
	for name, c := range map[string]struct{ mtls, policies, want string }{
		"no mTLS": {"", permission("p", "{kind: Mesh}", "{kind: Mesh}", "Deny"),
			"db open, queue open, MeshService/db.shop:5432 open"},
		"nothing": {mutual, "", "db denied, queue denied, MeshService/db.shop:5432 denied"},
		"one": {mutual, permission("p", "{kind: MeshService, name: db}", "{kind: MeshService, name: web}", "Allow"),
			"db allowed p spec.from[0], queue denied, MeshService/db.shop:5432 allowed p spec.from[0]"},
		"another client": {mutual, permission("p", "{kind: MeshService, name: db}", "{kind: MeshService, name: queue}",
			"Allow"), "db denied, queue denied"},
		"one is denied": {mutual, permission("p", "{kind: Mesh}", "{kind: Mesh}", "Allow") +
			permission("q", "{kind: MeshService, name: queue}", "{kind: Mesh}", "Deny"),
			"db allowed p spec.from[0], queue denied q spec.from[0]"},
		"legacy": {mutual, legacy("l", "{kuma.io/service: web}", "{kuma.io/service: db, version: v1}"),
			"db allowed l, queue denied, MeshService/db.shop:5432 allowed l"},
		"legacy, weaker": {mutual, legacy("l", "{kuma.io/service: '*'}", "{kuma.io/service: '*'}") +
			legacy("m", "{kuma.io/service: queue}", "{kuma.io/service: db}"), "db denied m, queue allowed l"},
		"legacy replaced": {mutual, legacy("l", "{kuma.io/service: '*'}", "{kuma.io/service: '*'}") + permission("p",
			"{kind: MeshService, name: db}", "{kind: Mesh}", "Deny"), "db denied p spec.from[0], queue allowed l"},
	} {
		got := backendsOf(t, fmt.Sprintf(callable, c.mtls, "")+c.policies)
		for want := range strings.SplitSeq(c.want, ", ") {
			service, _, _ := strings.Cut(want, " ")
			x := got[service]
			said := service + " " + x.Permission
			if by := x.PermissionBy; by != nil {
				said = strings.TrimSpace(said + " " + by.Name + " " + by.Field)
			}
			if said != want {
				t.Errorf("%s: %s, want %s", name, said, want)
			}
		}
		if x := got["MeshExternalService/pay:443"]; x.Permission == "" || len(x.Addresses) == 0 {
			t.Errorf("%s: %+v", name, x)
		}
	}

	got := backendsOf(t, fmt.Sprintf(callable, "", ""))
	db, tag := got["MeshService/db.shop:5433"], got["db"]
	if r := db.Ref; r == nil || r.Kind != "MeshService" || r.Name != "db" || r.Namespace != "shop" || *r.Port != 5433 ||
		!db.Reachable || len(db.Endpoints) != 1 || db.Endpoints[0].String() != "10.0.0.2:5432" {
		t.Errorf("%+v %+v", db, db.Ref)
	}
	if tag.Ref != nil || tag.Addresses[0].String() != "127.0.0.1:7000" || len(tag.Addresses) < 2 || tag.Cluster != "db" ||
		len(tag.Hostnames) == 0 {
		t.Errorf("%+v", tag)
	}
	// An entry makes exactly its backend reachable.
	for name, x := range got {
		if x.Ref == nil {
			continue
		}
		entry := fmt.Sprintf("{kind: %s, name: %s, port: %d", x.Ref.Kind, x.Ref.Name, *x.Ref.Port)
		if x.Ref.Namespace != "" {
			entry += ", namespace: " + x.Ref.Namespace
		}
		for other, y := range backendsOf(t, fmt.Sprintf(callable, "", ", reachableBackends: {refs: ["+entry+"}]}")) {
			if y.Kind != "" && y.Reachable != (other == name) {
				t.Errorf("with the entry for %s, %s is reachable: %v", name, other, y.Reachable)
			}
		}
	}
}
