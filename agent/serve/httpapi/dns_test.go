package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

const namedServices = `type: Mesh
name: default
---
type: Mesh
name: other
---
{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web}}]}}
---
{type: Dataplane, mesh: default, name: pay, networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: pay}}]}}
---
{type: Dataplane, mesh: other, name: web, networking: {address: 10.0.0.3, inbound: [{port: 80, tags: {kuma.io/service: web}}]}}
`

// startNames is an API with a resolver.
func startNames(t *testing.T) *testAPI {
	var table *names.Table
	a := startTCP(t, func(o *httpapi.Options) {
		o.Access = httpapi.Access{Roles: rolesOf(t, access.RoleOptions{Roles: testRoles, GID: -1}), Verify: subjects}
		o.DNS = func() explaindns.Resolver {
			return explaindns.Resolver{Table: table, DNSStatus: api.DNSStatus{State: api.DNSServing,
				Listen: []string{"127.0.0.1:15053"}, Names: len(table.Names),
				Views:    []api.DNSView{{Dataplanes: []string{"default/pay"}}, {Dataplanes: []string{"default/web"}}},
				QueryLog: &api.DNSQueryLog{File: "/q.log"}}}
		}
	})
	a.put(store.Source{Kind: store.SourceAPI}, namedServices)
	a.reconcile()
	var meshes []names.Mesh
	for _, m := range a.last.Load().Meshes {
		meshes = append(meshes, names.Mesh{View: m.View, Policies: m.Policies})
	}
	table = names.Build(names.Options{Suffixes: []string{"mesh"}}, meshes, nil)
	return a
}

// TestNames is who sees which names, views and claims.
func TestNames(t *testing.T) {
	a := startNames(t)
	for _, c := range []struct {
		who, query string
		status     int
		want       string // names
		views      int
		whole      bool
	}{
		{"viewer", "", 200, "pay.mesh web.mesh", 2, true},
		{"viewer", "?name=PAY.mesh.", 200, "pay.mesh", 2, true},
		{"viewer", "?name=no.mesh", 200, "", 2, true},
		{"viewer", "?mesh=other", 200, "", 2, true},
		{"viewer", "?size=1&offset=1", 200, "web.mesh", 2, true},
		{"viewer", "?size=0", 200, "", 2, true},
		{"viewer", "?size=x", 400, "", 0, false},
		{"team", "", 200, "web.mesh", 1, false},
		{"other", "", 200, "", 0, false},
		{"maker", "", 403, "", 0, false},
	} {
		r := a.do(http.MethodGet, "/v1/dns"+c.query, "", as(c.who))
		a.want(r, c.status)
		if c.status != 200 {
			continue
		}
		var got api.DNS
		if err := json.Unmarshal([]byte(r.body), &got); err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, n := range got.Items {
			list = append(list, n.Name)
		}
		if strings.Join(list, " ") != c.want || len(got.Views) != c.views || got.QueryLog != nil != c.whole {
			t.Errorf("%s%s sees %q, %d views, query log %v", c.who, c.query, list, len(got.Views), got.QueryLog)
		}
	}
	a.want(a.do(http.MethodGet, "/v1/dns?size=1", "", as("viewer")), 200, `"total":2`,
		`"next":"/v1/dns?offset=1\u0026size=1"`)
	a.want(a.do(http.MethodGet, "/v1/dns?name=web.mesh", "", as("viewer")), 200,
		`"contested":[{"mesh":"other","kind":"ServiceTag","service":"web","origin":"tag","why":"mesh default takes precedence over other by its name"}]`)
	if r := a.do(http.MethodGet, "/v1/dns?name=web.mesh", "", as("team")); strings.Contains(r.body, "other") ||
		!strings.Contains(r.body, "you do not have permission to view the service") {
		t.Errorf("somebody sees a service that he may not look into: %s", r.body)
	}
}

// TestExplainName is who may ask about which name.
func TestExplainName(t *testing.T) {
	a := startNames(t)
	for _, c := range []struct {
		who, body string
		status    int
		part      string
	}{
		{"viewer", `{"dns": {"name": "web", "search": ["mesh"]}}`, 200, `"verdict":"resolves"`},
		{"team", `{"dns": {"name": "web.mesh", "dataplane": "web"}}`, 200, `"verdict":"resolves"`},
		{"team", `{"dns": {"name": "pay.mesh"}}`, 403, "permission-denied"},
		{"team", `{"dns": {"name": "pay", "search": ["mesh"]}}`, 403, "permission-denied"},
		{"team", `{"dns": {"name": "web.mesh", "dataplane": "pay"}}`, 403, "permission-denied"},
		{"team", `{"dns": {"name": "pey.mesh"}}`, 200, `did you mean web.mesh?`},
		{"viewer", `{"dns": {"name": "pey.mesh"}}`, 200, `did you mean pay.mesh?`},
		{"viewer", `{"dns": {"name": "web.mesh", "dataplane": "gone"}}`, 404, "gone"},
		{"viewer", `{"dns": {"name": "web.mesh", "dataplane": "web", "mesh": "gone"}}`, 400, `"field":"dns.mesh"`},
		{"viewer", `{"dns": {}}`, 400, `"field":"dns.name"`},
		{"viewer", `{"dns": {"name": "a..b"}}`, 400, `"field":"dns.name"`},
		{"viewer", `{"dns": {"name": "a", "ndots": 16}}`, 400, `"field":"dns.ndots"`},
		{"viewer", `{"dns": {"name": "a"}, "request": {"from": "web", "to": "a:1"}}`, 400, "only one of them"},
		{"maker", `{"dns": {"name": "web.mesh"}}`, 403, "permission-denied"},
	} {
		a.want(a.do(http.MethodPost, "/v1/explain", c.body, as(c.who)), c.status, c.part)
	}
}
