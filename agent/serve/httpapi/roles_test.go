package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// subjects takes every token "is-SUBJECT" for one of that subject.
func subjects(text string) (token.Claims, error) {
	if s, ok := strings.CutPrefix(text, "is-"); ok {
		return token.Claims{Subject: s, Audience: "api"}, nil
	}
	return token.Claims{}, errors.New("the token is not signed by a key of this agent")
}

// as returns the Authorization header with a token for subject.
func as(subject string) string { return "Authorization: Bearer is-" + subject }

var testRoles = []access.Role{
	{Name: "ops", Template: access.TemplateOperator, Subjects: []access.Matcher{{Token: "ops"}}},
	{Name: "observers", Template: access.TemplateObservability, Subjects: []access.Matcher{{Token: "obs"}}},
	{Name: "readers", Template: access.TemplateViewer, Subjects: []access.Matcher{{Token: "viewer"}, {Token: "both"}}},
	{Name: "team", Subjects: []access.Matcher{{Token: "team"}, {Token: "both"}}, Allow: []access.Allow{
		{Kinds: []string{"MeshTimeout"}, Meshes: []string{"default"}, Names: []string{"web-*"}, Verbs: []string{"*"}},
		{Kinds: []string{"Dataplane", "MeshService"}, Meshes: []string{"default"}, Names: []string{"web*"},
			Verbs: []string{"get", "list", "inspect"}},
	}},
	{Name: "neighbours", Subjects: []access.Matcher{{Token: "other"}}, Allow: []access.Allow{
		{Kinds: []string{"*"}, Meshes: []string{"other"}, Verbs: []string{"*"}}}},
	{Name: "makers", Subjects: []access.Matcher{{Token: "maker"}}, Allow: []access.Allow{
		{Kinds: []string{"MeshTimeout"}, Verbs: []string{"create"}}}},
}

const testMeshes = `
{type: Mesh, name: default}
---
{type: Mesh, name: other}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 192.0.2.1, inbound: [{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 1, tags: {kuma.io/service: pay}}]}}
---
{type: Dataplane, mesh: default, name: pay, networking: {address: 192.0.2.2, inbound: [{port: 80, tags: {kuma.io/service: pay}}]}}
---
{type: Dataplane, mesh: other, name: web, networking: {address: 192.0.2.3, inbound: [{port: 80, tags: {kuma.io/service: web}}]}}
---
{type: MeshTimeout, mesh: default, name: web-1, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}}
---
{type: MeshTimeout, mesh: default, name: pay-1, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1s}}]}}
---
{type: MeshTimeout, mesh: other, name: web-1, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}}
---
{type: ZoneEgress, name: out, networking: {address: 192.0.2.9, port: 10002}}
`

// startRoles is an API over TCP with testRoles and testMeshes.
func startRoles(t testing.TB) *testAPI {
	t.Helper()
	a := startTCP(t, func(o *httpapi.Options) {
		o.Access = httpapi.Access{Roles: rolesOf(t, access.RoleOptions{Roles: testRoles, GID: -1}), Verify: subjects,
			Proxies: []access.ProxyRule{{Matcher: access.Matcher{UID: "1000"}, Nodes: []string{"default.web"}}}}
		o.Files = func() []api.FileStatus { return []api.FileStatus{{Path: "/r/secret-name.yaml"}} }
	})
	a.put(store.Source{Kind: store.SourceAPI}, testMeshes)
	a.reconcile(api.Problem{Resource: "Dataplane/default/pay", Severity: api.SeverityWarning, Reason: "of pay"},
		api.Problem{Resource: "Dataplane/default/web", Severity: api.SeverityWarning, Reason: "of web"})
	return a
}

// TestEveryRouteIsGuarded queries every route without a token, and with the token of a user without
// a role.
func TestEveryRouteIsGuarded(t *testing.T) {
	a := startRoles(t)
	fill := strings.NewReplacer("{$}", "", "{plural}", "meshtimeouts", "{mesh}", "default", "{name}", "web-1")
	var open []string
	for _, x := range a.srv.Routes() {
		path := fill.Replace(x.Pattern)
		if x.Pattern == "/{plural}/{name}" || strings.Contains(x.Pattern, "/history/{plural}/{name}") {
			path = strings.Replace(strings.Replace(path, "meshtimeouts", "meshes", 1), "web-1", "default", 1)
		}
		if strings.HasSuffix(path, "_hostnames") {
			path = strings.Replace(path, "meshtimeouts", "meshservices", 1)
		}
		if x.Open {
			open = append(open, x.Pattern)
			a.want(a.do(x.Method, path, ""), 200)
			continue
		}
		a.want(a.do(x.Method, path, "{}"), 401, "token-needed")
		if x.Connected {
			if !strings.HasPrefix(x.Pattern, "/v1/access/") {
				t.Errorf("%s takes no permission", x.Pattern)
			}
			continue
		}
		if len(x.Verbs) == 0 {
			t.Errorf("%s %s has no verb", x.Method, x.Pattern)
		}
		a.want(a.do(x.Method, path, "{}", as("nobody")), 403, "permission-denied", `with the token \"nobody\" may not `,
			`"denied":[{"who":`)
		if x.Method == "GET" {
			if got := a.do("HEAD", path, "", as("nobody")); got.status != 403 {
				t.Errorf("HEAD %s: %d", path, got.status)
			}
		}
	}
	slices.Sort(open)
	if got := strings.Join(open, " "); got != "/livez /readyz /{$}" {
		t.Errorf("open to all: %s", got)
	}
}

// TestRoles is the table of responses by role.
func TestRoles(t *testing.T) {
	mt := func(mesh, name, timeout string) string {
		return fmt.Sprintf(`{"type":"MeshTimeout","mesh":%q,"name":%q,"spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":%q}}]}}`, mesh, name, timeout)
	}
	const (
		in     = "/meshes/default/meshtimeouts/"
		flow   = `{"connection":{"from":%q,"to":"pay:80"}}`
		backed = `{"type":"MeshAccessLogBackend","mesh":"default","name":"b","spec":{"name":"b","type":"File","file":{"path":"/tmp/a.log"}}}`
	)
	a := startRoles(t)
	for _, c := range []struct {
		who, method, path, body string
		want                    int
		parts                   []string // that the answer has; of those that begin with "-" none
	}{
		{"team", "GET", "/meshtimeouts", "", 200, []string{`"total":1`, "web-1", `"mesh":"default"`, "-pay-1", `-"other"`}},
		{"viewer", "GET", "/meshtimeouts", "", 200, []string{`"total":3`}},
		{"both", "GET", "/meshtimeouts", "", 200, []string{`"total":3`}},
		{"other", "GET", "/meshtimeouts", "", 200, []string{`"total":1`, `"mesh":"other"`}},
		{"other", "GET", "/meshes", "", 200, []string{`"total":1`, `"name":"other"`}},
		{"other", "GET", "/meshes/default/meshtimeouts", "", 403,
			[]string{"list MeshTimeout default/*", "ops, observers, readers, team"}},
		{"team", "GET", "/meshes", "", 403, []string{"list Mesh"}},
		{"team", "GET", "/meshes/default", "", 403, []string{"may not get Mesh", "ops, observers, readers"}},
		{"team", "GET", in + "web-1", "", 200, nil},
		{"team", "GET", in + "pay-1", "", 403, []string{
			`"verb":"get","kind":"MeshTimeout","mesh":"default","name":"pay-1","roles":["ops","observers","readers"]`,
		}},
		{"team", "GET", in + "nope", "", 403, nil},
		{"team", "GET", in + "web-nope", "", 404, nil},
		{"maker", "GET", in + "web-1", "", 403, nil},
		{"team", "GET", "/v1/history/meshtimeouts/default/web-1", "", 200, nil},
		{"team", "GET", "/v1/history/meshtimeouts/default/pay-1", "", 403, []string{"may not get"}},
		{"team", "GET", "/v1/names?kind=mt", "", 200, []string{`{"names":["web-1"]}`}},
		{"team", "GET", "/v1/names?kind=mt&mesh=other", "", 403, nil},
		{"team", "GET", "/v1/names?kind=meshes", "", 403, nil},
		{"maker", "GET", "/v1/kinds", "", 200, nil},
		{"maker", "GET", "/v1/names", "", 200, []string{"meshtimeouts"}},
		{"maker", "GET", "/v1/names?kind=mt", "", 403, nil},
		{"team", "GET", "/v1/applied/mt", "", 200, []string{`"total":1`, "-pay-1"}},
		{"maker", "GET", "/v1/applied/mt", "", 403, nil},
		{"team", "GET", "/v1/dataplanes", "", 200, []string{`"total":1`, `"name":"web"`, "-pay"}},
		{"viewer", "GET", "/v1/dataplanes", "", 200, []string{`"total":3`}},
		{"maker", "GET", "/v1/dataplanes", "", 403, nil},
		{"team", "GET", "/v1/services", "", 200, []string{`"total":1`, `"name":"web"`, "-pay"}},
		{"team", "GET", "/v1/services?kind=meshexternalservices", "", 403, nil},
		{"team", "GET", "/v1/services?mesh=other", "", 403, nil},
		{"maker", "GET", "/v1/services", "", 403, nil},
		{"team", "GET", "/v1/status", "", 200, []string{"of web", "-of pay",
			"-secret-name", `"resources":{"Dataplane":1,"MeshTimeout":1}`, `"proxies":{"disconnected":1}`}},
		{"viewer", "GET", "/v1/status", "", 200, []string{"of web", "of pay", "secret-name"}},
		{"maker", "GET", "/v1/status", "", 403, nil},
		{"viewer", "GET", "/metrics", "", 200, nil},
		{"other", "GET", "/metrics", "", 403, nil},
		{"viewer", "GET", "/v1/access", "", 200, []string{`"name":"team"`, `"nodes":["default.web"]`}},
		{"other", "GET", "/v1/access", "", 403, nil},
		{"team", "GET", "/meshes/default/dataplanes/web/_config", "", 200, nil},
		{"team", "GET", "/meshes/default/dataplanes/pay/_config", "", 403, []string{"may not inspect Dataplane default/pay"}},
		{"team", "GET", "/meshes/default/dataplanes/pay/_rules", "", 403, nil},
		{"team", "GET", "/v1/dataplanes/default/pay/policies", "", 403, nil},
		{"team", "GET", "/v1/dataplanes/other/web/status", "", 403, nil},
		{"other", "GET", "/v1/dataplanes/other/web/status", "", 200, nil},
		{"other", "GET", "/v1/zoneegresses/out/status", "", 403, nil},
		{"viewer", "GET", "/v1/zoneegresses/out/status", "", 200, nil},
		{"team", "GET", "/meshes/default/meshservices/pay/_hostnames", "", 403, nil},

		{"viewer", "PUT", in + "web-2", mt("default", "web-2", "1s"), 403,
			[]string{"may not create MeshTimeout default/web-2", `"roles":["ops","team","makers"]`}},
		{"viewer", "PUT", in + "web-1", mt("default", "web-1", "2s"), 403,
			[]string{"may not update MeshTimeout default/web-1"}},
		{"viewer", "DELETE", in + "web-1", "", 403, []string{"may not delete"}},
		{"team", "PUT", in + "web-2", mt("default", "web-2", "1s"), 201, nil},
		{"team", "PUT", in + "pay-2", mt("default", "pay-2", "1s"), 403, nil},
		{"team", "PUT", in + "web-2?dryRun=true", mt("default", "web-2", "3s"), 200,
			[]string{"no diff is shown: ", "inspect Dataplane default/*", `"fields":[`, `-"diff":{`}},
		{"ops", "PUT", in + "web-2?dryRun=true", mt("default", "web-2", "3s"), 200, []string{`"diff":{`}},
		{"viewer", "PUT", in + "web-2?dryRun=true", mt("default", "web-2", "3s"), 403, nil},
		{"maker", "PUT", in + "m", mt("default", "m", "1s"), 201, nil},
		{"maker", "PUT", in + "m", mt("default", "m", "2s"), 403, []string{"may not update MeshTimeout default/m", "ops"}},
		{"maker", "DELETE", in + "m", "", 403, nil},
		{"team", "DELETE", in + "web-2", "", 200, nil},
		{"obs", "PUT", in + "web-1", mt("default", "web-1", "2s"), 403, nil},
		{"obs", "PUT", "/meshes/default/meshaccesslogbackends/b",
			backed, 403, []string{"may not create MeshAccessLogBackend default/b with log-path"}},
		{"obs", "PUT", "/meshes/default/meshaccesslogbackends/b", collector, 201, nil},
		{"obs", "POST", "/v1/apply", mt("default", "x", "1s") + "\n---\n" + backed, 403,
			[]string{"may not create MeshTimeout default/x"}},
		{"team", "POST", "/v1/apply", mt("default", "web-3", "1s") + "\n---\n" + mt("default", "pay-3", "1s") + "\n---\n" +
			mt("other", "web-1", "1s"), 403,
			[]string{"may not write 2 of the documents", `"document":"MeshTimeout/default/pay-3"`,
				`"document":"MeshTimeout/other/web-1"`, "may not update MeshTimeout other/web-1"}},
		{"ops", "GET", in + "web-3", "", 404, nil},
		{"team", "POST", "/v1/apply", mt("default", "web-3", "1s"), 200, nil},
		{"viewer", "POST", "/v1/apply", "not a document", 403, []string{"may not create; "}},
		{"viewer", "POST", "/v1/apply", strings.Repeat("#", 1<<20), 403, []string{"may not create; "}},
		{"viewer", "POST", "/v1/apply", mt("default", "new", "1s"), 403,
			[]string{"may not create MeshTimeout default/new; ", "ops, makers"}},
		{"team", "POST", "/v1/rollback", `{"type":"mt","mesh":"default","name":"pay-1","revision":1}`,
			403, []string{"may not update"}},
		{"team", "POST", "/v1/rollback", `{"type":"mt","mesh":"default","name":"web-2","revision":1}`,
			400, []string{"is not in the history"}},
		{"maker", "POST", "/v1/rollback", `{"type":"mt","mesh":"default","name":"web-1","revision":1}`,
			403, []string{"may not update"}},
		{"viewer", "POST", "/v1/rollback", `{}`, 403, nil},

		{"team", "POST", "/v1/wait", `{"type":"mt","mesh":"default","name":"web-1","timeout":"0s"}`, 200, nil},
		{"team", "POST", "/v1/wait", `{"type":"mt","mesh":"default","name":"pay-1","timeout":"0s"}`, 403, nil},
		{"maker", "POST", "/v1/wait", `{}`, 403, nil},
		{"team", "POST", "/v1/explain", `{"policy":{"type":"mt","name":"web-1","dataplane":"web"}}`, 200, nil},
		{"team", "POST", "/v1/explain", `{"policy":{"type":"mt","name":"web-1","dataplane":"pay"}}`, 403, nil},
		{"team", "POST", "/v1/explain", `{"policy":{"type":"mt","name":"pay-1","dataplane":"web"}}`, 403, nil},
		{"team", "POST", "/v1/explain", fmt.Sprintf(flow, "pay"), 403, []string{"inspect Dataplane default/pay"}},
		{"team", "POST", "/v1/explain", fmt.Sprintf(flow, "web"), 403, []string{"inspect Dataplane default/pay"}},
		{"viewer", "POST", "/v1/explain", fmt.Sprintf(flow, "web"), 200, nil},
		{"team", "POST", "/v1/diff", mt("default", "web-1", "9s"), 403, []string{"inspect Dataplane default/*"}},
		{"team", "POST", "/v1/diff?dataplane=web", mt("default", "web-1", "9s"), 200, []string{`"action":"changed"`, "-pay"}},
		{"team", "POST", "/v1/diff?dataplane=web", mt("default", "pay-1", "9s"), 403,
			[]string{"inspect MeshTimeout default/pay-1"}},
		{"other", "POST", "/v1/diff", mt("other", "web-1", "9s"), 200, nil},
		{"other", "POST", "/v1/diff", mt("other", "web-1", "9s") + "\n---\n" + mt("default", "web-1", "9s"), 403, nil},
		{"other", "POST", "/v1/diff?shadow=true", "", 403, []string{"inspect Dataplane;"}},
		{"other", "POST", "/v1/diff?shadow=true&mesh=other", "", 200, nil},
		{"other", "POST", "/v1/diff?delete=mt/default/web-1", "", 403, nil},
		{"other", "POST", "/v1/diff?delete=zoneegress/out", "", 403, nil},
		{"other", "DELETE", "/zoneegresses/out", "", 403, nil},
		{"viewer", "POST", "/v1/diff", mt("other", "web-1", "9s"), 200, nil},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.who, c.method, c.path), func(t *testing.T) {
			a.t = t
			got := a.do(c.method, c.path, c.body, as(c.who))
			for _, p := range c.parts {
				if p, ok := strings.CutPrefix(p, "-"); ok && strings.Contains(got.body, p) {
					t.Errorf("%q is in %s", p, got.body)
				}
			}
			a.want(got, c.want, slices.DeleteFunc(slices.Clone(c.parts), func(p string) bool { return p[0] == '-' })...)
		})
	}
}

func TestWhoamiAndCan(t *testing.T) {
	a := startRoles(t)
	a.want(a.do("GET", "/v1/access/whoami", "", as("team")), 200, `"roles":["team"]`, `"operator":false`, `"token":"team"`,
		`"verbs":["get","list","inspect","create","update","delete","read-logs"]`)
	a.want(a.do("GET", "/v1/access/whoami", "", as("viewer")), 200, `"verbs":["get","list","inspect"]`)
	a.want(a.do("GET", "/v1/access/whoami", "", as("nobody")), 200, `"roles":[]`, `"verbs":[]`,
		"no role of api.roles names this peer")
	for _, c := range []struct{ who, query, want string }{
		{"team", "verb=update&kind=mt&mesh=default&name=web-9",
			`"action":"update MeshTimeout default/web-9","allowed":true,"roles":[]`},
		{"team", "verb=update&kind=mt&mesh=default&name=pay", `"allowed":false,"reason":"address 127.0.0.1`},
		{"team", "verb=update&kind=mt&mesh=default&name=pay", `"roles":["ops"]`},
		{"team", "verb=list&kind=mt", `"allowed":true,"partial":true`},
		{"team", "verb=create&kind=mt&mesh=default", `"allowed":false,"partial":true`},
		{"team", "verb=delete&kind=mesh&mesh=default&name=default", `"action":"delete Mesh default/default","allowed":false`},
		{"viewer", "verb=inspect", `"action":"inspect","allowed":true,"roles":[]`},
		{"nobody", "verb=get&kind=mt", `"allowed":false`},
	} {
		for _, method := range []string{"GET", "POST"} {
			a.want(a.do(method, "/v1/access/can?"+c.query, "", as(c.who)), 200, c.want)
		}
	}
	a.want(a.do("GET", "/v1/access/can?kind=mt", "", as("team")), 400, `"field":"verb"`)
	a.want(a.do("GET", "/v1/access/can?verb=get&kind=nope", "", as("team")), 400, `"field":"kind"`)

	b := start(t)
	b.want(b.do("GET", "/v1/access/whoami", ""), 200, `"operator":true`, `"local":true`)
	var l api.AccessList
	if err := json.Unmarshal([]byte(b.do("GET", "/v1/access", "").body), &l); err != nil || l.Configured ||
		l.ProxiesConfigured || l.Roles == nil || l.Proxies == nil {
		t.Errorf("without roles: %+v %v", l, err)
	}
}

// TestWrongTokens sends more wrong tokens than the agent verifies: valid tokens still work, and
// refused requests are counted.
func TestWrongTokens(t *testing.T) {
	reg := prometheus.NewRegistry()
	verified := map[string]int{}
	a := startTCP(t, func(o *httpapi.Options) {
		o.Measure, o.Metrics = reg, reg
		o.Access.Token = "of the token file"
		o.Access.Verify = func(text string) (token.Claims, error) { verified[text]++; return subjects(text) }
	})
	a.want(a.do("GET", "/meshes", "", as("early")), 200)
	limited := 0
	for i := range 1000 {
		if i == 30 {
			a.want(a.do("GET", "/meshes", "", as("late")), 200) // a valid token of the same address
			delete(verified, "is-late")
		}
		header := "Authorization: Bearer wrong" + fmt.Sprint(i)
		if i%2 == 1 {
			header = "Authorization: Basic eDp5"
		}
		switch got := a.do("GET", "/meshes", "", header); got.status {
		case 429:
			a.want(got, 429, "too-many-requests", " has sent too many wrong tokens")
			if got.header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After: %q", got.header.Get("Retry-After"))
			}
			limited++
		default:
			a.want(got, 401)
		}
	}
	if wrong := len(verified) - 1; limited < 900 || wrong > 300 {
		t.Errorf("%d wrong tokens were verified, %d requests limited", wrong, limited)
	}
	a.want(a.do("GET", "/meshes", "", as("early")), 200)
	if verified["is-early"] != 2 {
		t.Errorf("a token that was right before was verified %d times, want each time: it may have been revoked",
			verified["is-early"])
	}
	a.want(a.do("GET", "/meshes", "", "Authorization: Bearer of the token file"), 200)
	a.want(a.do("GET", "/livez", "", "Authorization: Bearer wrong"), 200)
	got := a.do("GET", "/metrics", "", as("early"))
	a.want(got, 200, `nearside_api_auth_failures_total{reason="limited"} `+fmt.Sprint(limited), `{reason="malformed"}`,
		`{reason="invalid"}`)
}
