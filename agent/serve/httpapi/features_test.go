package httpapi_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// TestRouteActions compares the permission of every route with a list, so that a new route needs a
// decision.
func TestRouteActions(t *testing.T) {
	const list = "testdata/routes.txt"
	a := startRoles(t)
	var lines []string
	for _, x := range a.srv.Routes() {
		lines = append(lines, fmt.Sprintf("%-6s %s: %s", x.Method, x.Pattern, x.Need))
	}
	slices.Sort(lines)
	text := strings.Join(lines, "\n") + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(list, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(list)
	if err != nil || string(want) != text {
		t.Errorf("%v; the routes are\n%s\nDecide the permission of each new route, and update %s", err, text, list)
	}
}

const (
	unsafePatch = `{"type":"MeshProxyPatch","mesh":"default","name":"p","spec":{"targetRef":{"kind":"Mesh"},"default":{"appendModifications":[{"cluster":{"operation":"Add","value":"{name: a, connectTimeout: 1s, loadAssignment: {clusterName: a, endpoints: [{lbEndpoints: [{endpoint: {address: {pipe: {path: /run/api.sock}}}}]}]}}"}}]}}}`
	safePatch   = `{"type":"MeshProxyPatch","mesh":"default","name":"p","spec":{"targetRef":{"kind":"Mesh"},"default":{"appendModifications":[{"cluster":{"operation":"Patch","value":"connectTimeout: 1s"}}]}}}`
	filePath    = `{"type":"MeshAccessLogBackend","mesh":"default","name":"b","spec":{"name":"b","type":"File","file":{"path":"/var/log/nearside/audit.log"}}}`
	collector   = `{"type":"MeshAccessLogBackend","mesh":"default","name":"b","spec":{"name":"b","type":"Tcp","tcp":{"address":"192.0.2.7:5000"}}}`
)

// startFeatures is an API over TCP with roles for features.
func startFeatures(t *testing.T, change ...func(*httpapi.Options)) *testAPI {
	t.Helper()
	roles := append(slices.Clone(testRoles),
		access.Role{Name: "patcher", Subjects: []access.Matcher{{Token: "patcher"}}, Allow: []access.Allow{
			{Kinds: []string{"MeshProxyPatch"}, Verbs: []string{"*"}}}},
		access.Role{Name: "unsafe", Subjects: []access.Matcher{{Token: "unsafe"}}, Allow: []access.Allow{
			{Kinds: []string{"MeshProxyPatch"}, Verbs: []string{"*"}, Features: []string{"patch-unsafe"}}}},
		access.Role{Name: "logger", Subjects: []access.Matcher{{Token: "logger"}}, Allow: []access.Allow{
			{Kinds: []string{"MeshAccessLogBackend"}, Verbs: []string{"*"}, Features: []string{"log-path"}}}},
		access.Role{Name: "nodes", Subjects: []access.Matcher{{Token: "nodes"}}, Allow: []access.Allow{
			{Kinds: []string{"Agent"}, Verbs: []string{"*"}}}})
	a := startTCP(t, append(change, func(o *httpapi.Options) {
		o.Access = httpapi.Access{Roles: rolesOf(t, access.RoleOptions{Roles: roles, GID: -1}), Verify: subjects}
	})...)
	a.want(a.do("PUT", "/meshes/default", `{"type":"Mesh","name":"default"}`, as("ops")), 201)
	return a
}

// TestFeatures checks that a resource with a danger is stored only by senders with the feature, on
// each way to store one.
func TestFeatures(t *testing.T) {
	const (
		patch  = "/meshes/default/meshproxypatches/p"
		logs   = "/meshes/default/meshaccesslogbackends/b"
		reason = "spec.default.appendModifications[0].cluster.value.loadAssignment.endpoints[0]." +
			"lbEndpoints[0].endpoint.address.pipe names a socket or pipe"
	)
	a := startFeatures(t)
	a.want(a.do("PUT", patch, unsafePatch, as("patcher")), 403, "may not create MeshProxyPatch default/p with "+
		"patch-unsafe", reason, "needs the feature patch-unsafe", `"features":["patch-unsafe"]`, `"roles":["ops","unsafe"]`)
	a.want(a.do("PUT", patch+"?dryRun=true", unsafePatch, as("patcher")), 403, "with patch-unsafe")
	a.want(a.do("POST", "/v1/apply", unsafePatch, as("patcher")), 403, "with patch-unsafe")
	a.want(a.do("PUT", patch, safePatch, as("patcher")), 201)
	a.want(a.do("POST", "/v1/apply", unsafePatch, as("patcher")), 403,
		"may not update MeshProxyPatch default/p with patch-unsafe")
	a.want(a.do("PUT", patch, unsafePatch, as("unsafe")), 200)

	// A change of another field stores the whole resource.
	retargeted := strings.Replace(unsafePatch, `{"kind":"Mesh"}`, `{"kind":"MeshSubset","tags":{"a":"b"}}`, 1)
	a.want(a.do("PUT", patch, retargeted, as("patcher")), 403, "with patch-unsafe")
	a.want(a.do("PUT", patch, safePatch, as("patcher")), 200)
	history := a.do("GET", "/v1/history/meshproxypatches/default/p", "", as("patcher"))
	a.want(history, 200)
	before, _, _ := strings.Cut(history.body, "api.sock")
	_, number, _ := strings.Cut(before[strings.LastIndex(before, `"revision":`):], ":")
	number, _, _ = strings.Cut(number, ",")
	back := `{"type":"MeshProxyPatch","mesh":"default","name":"p","revision":` + number + `}`
	a.want(a.do("POST", "/v1/rollback", back, as("patcher")), 403, "with patch-unsafe", reason)
	a.want(a.do("POST", "/v1/rollback", back, as("unsafe")), 200)
	a.want(a.do("DELETE", patch, "", as("patcher")), 200)

	a.want(a.do("PUT", logs, filePath, as("obs")), 403, "with log-path",
		`spec.file.path names the log file \"/var/log/nearside/audit.log\"`)
	a.want(a.do("PUT", logs, collector, as("obs")), 201)
	a.want(a.do("PUT", logs, filePath, as("logger")), 200)
	a.want(a.do("PUT", logs, filePath, as("ops")), 200)
	a.want(a.do("PUT", "/meshes/default",
		`{"type":"Mesh","name":"default","logging":{"backends":[{"name":"a","type":"file","conf":{"path":"/tmp/a"}}]}}`,
		as("ops")), 200)
}

// TestFeaturesOfRestored checks that restoring the dangerous version of a conflict needs a feature.
func TestFeaturesOfRestored(t *testing.T) {
	res, err := kinds.Registry().DecodeOne([]byte(unsafePatch))
	if err != nil {
		t.Fatal(err)
	}
	a := startFeatures(t, func(o *httpapi.Options) {
		o.Pool = &quarrel{own: []api.Conflict{{ID: "1", State: api.ConflictLost, Key: res.Key, Resource: res}}}
	})
	a.want(a.do("POST", "/v1/conflicts/restore", `{"id":"1"}`, as("patcher")), 403, "with patch-unsafe")
	a.want(a.do("POST", "/v1/conflicts/restore", `{"id":"1"}`, as("unsafe")), 200)
}

// TestAgentVerbs checks that node-wide requests need a permission for Agent, which a permission for
// one kind does not include.
func TestAgentVerbs(t *testing.T) {
	a := startFeatures(t)
	for _, c := range []struct {
		method, path, body string
		reads              bool
	}{
		{"POST", "/v1/members/leave", "", false},
		{"POST", "/v1/members/join", `{"addresses":["192.0.2.1:1"]}`, false},
		{"POST", "/v1/members/forget", `{"node":"x"}`, false},
		{"POST", "/v1/members/heal", `{"dryRun":true}`, false},
		{"PUT", "/v1/debug/loglevel", `{"level":"debug"}`, false},
		{"GET", "/v1/debug/pprof?profile=goroutine", "", false},
		{"GET", "/v1/debug/loglevel", "", true},
		{"GET", "/v1/keyring", "", true},
	} {
		verb := "update"
		if c.reads {
			verb = "inspect"
		}
		for who, allowed := range map[string]bool{
			"nodes": true, "ops": true, "team": false, "patcher": false, "logger": false, "other": false, "maker": false,
			"obs": false, "viewer": c.reads,
		} {
			got := a.do(c.method, c.path, c.body, as(who))
			if (got.status != 403) != allowed || !allowed && !strings.Contains(got.body, "may not "+verb+" Agent") {
				t.Errorf("%s %s by %s: %d %s", c.method, c.path, who, got.status, got.body)
			}
		}
	}
}

// TestCanFeatures checks the answers about features and Agent.
func TestCanFeatures(t *testing.T) {
	a := startFeatures(t)
	for _, c := range []struct {
		who, query, want string
		status           int
	}{
		{"patcher", "verb=create&kind=meshproxypatch&mesh=default", `"allowed":true`, 200},
		{"patcher", "verb=create&kind=meshproxypatch&mesh=default&feature=patch-unsafe", `"roles":["ops","unsafe"]`, 200},
		{"unsafe", "verb=update&kind=mpp&mesh=default&name=x&feature=patch-unsafe",
			`"action":"update MeshProxyPatch default/x with patch-unsafe","allowed":true`, 200},
		{"unsafe", "verb=update&kind=mpp&mesh=default&feature=patch-unsafe,log-path", `"allowed":false`, 200},
		{"ops", "verb=update&kind=Agent", `"action":"update Agent","allowed":true`, 200},
		{"ops", "verb=update&kind=agent", `"allowed":true`, 200},
		{"obs", "verb=update&kind=Agent", `"allowed":false`, 200},
		{"obs", "verb=inspect&kind=Agent", `"allowed":false`, 200},
		{"viewer", "verb=inspect&kind=Agent", `"allowed":true`, 200},
		{"ops", "verb=read-logs&kind=Agent", `"allowed":true`, 200},
		{"viewer", "verb=read-logs&kind=Agent", `"allowed":false`, 200},
		{"viewer", "verb=read-logs&kind=dataplane&mesh=default&name=web", `"allowed":false`, 200},
		{"ops", "verb=delete&kind=Agent", "use inspect, update, or read-logs for Agent", 400},
		{"ops", "verb=update&feature=x", "use one of patch-unsafe, log-path", 400},
		{"ops", "verb=get&kind=mpp&feature=log-path", "only create and update need features", 400},
	} {
		a.want(a.do("GET", "/v1/access/can?"+c.query, "", as(c.who)), c.status, c.want)
	}
}

// TestFeaturesWithoutRoles checks that writers need no feature without roles.
func TestFeaturesWithoutRoles(t *testing.T) {
	a := start(t)
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
	a.want(a.do("PUT", "/meshes/default/meshproxypatches/p", unsafePatch), 201)
	a.want(a.do("PUT", "/meshes/default/meshaccesslogbackends/b", filePath), 201)
}
