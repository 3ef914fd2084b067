package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// diffOf asks for a diff and reads the answer.
func diffOf(a *testAPI, query, body string) api.Diff {
	a.t.Helper()
	got := a.do("POST", "/v1/diff"+query, body)
	a.want(got, 200)
	var d api.Diff
	if err := json.Unmarshal([]byte(got.body), &d); err != nil {
		a.t.Fatal(err)
	}
	return d
}

// slow is a MeshTimeout t1 for all services; edits are pairs of old and new text.
func slow(d string, edits ...string) string {
	return strings.NewReplacer(append(edits, "DURATION", d)...).Replace(
		"{type: MeshTimeout, mesh: default, name: t1, spec: {to: [{targetRef: {kind: Mesh}, " +
			"default: {connectionTimeout: DURATION}}]}}")
}

func TestDiff(t *testing.T) {
	var connected []api.ProxyStatus
	a := start(t, func(o *httpapi.Options) { o.Proxies = func() []api.ProxyStatus { return connected } })
	a.want(a.do("POST", "/v1/diff", slow("9s")), 503, "first configs")
	a.put(store.Source{Kind: store.SourceFile, Detail: "/r/a.yaml"}, services+"\n---\n"+slow("5s"))
	a.reconcile()
	before := a.store.Snapshot()

	// Nobody is connected: all.
	got := a.do("POST", "/v1/diff", slow("9s"))
	a.want(got, 200, `"changed":true`, `"scope":"all"`, `"compared":3`,
		`"resources":[{"type":"MeshTimeout","mesh":"default","name":"t1","action":"changed","shadow":false,"owner":"file:/r/a.yaml","fields":[{"path":"spec.to[0].default.connectionTimeout","before":"5s","after":"9s"}]}]`,
		`"policies":[{"type":"MeshTimeout","mesh":"default","name":"t1"}]`,
		`"patch":[{"op":"replace","path":"/type.googleapis.com~1envoy.config.cluster.v3.Cluster/svc-1/connectTimeout","value":"9s"}`,
		`{"path":"connectTimeout","before":"5s","after":"9s","by":[{"type":"MeshTimeout","mesh":"default","name":"t1"}]}`,
		`{"op":"replace","path":"/MeshTimeout/toRules/0/conf/connectionTimeout","value":"9s"}`, `"warnings":[]`)
	if strings.Contains(got.body, "null") {
		t.Errorf("something is null: %s", got.body)
	}
	if second := a.do("POST", "/v1/diff", slow("9s")); second.body != got.body {
		t.Error("two answers differ")
	}
	if d := diffOf(a, "", slow("5s")); d.Changed || len(d.Proxies) > 0 ||
		d.Resources[0].Action != api.ActionUnchanged || d.Compared != 3 {
		t.Errorf("the same document: %+v", d)
	}
	if a.store.Snapshot() != before {
		t.Error("something was stored")
	}

	// The connected ones, or the one named.
	connected = []api.ProxyStatus{
		{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy, State: api.StateServing}, {Mesh: "default", Name: "svc-1",
			State: api.StateDisconnected}, {Mesh: "default", Name: "new", Flavor: node.FlavorEnvoy, State: api.StateUnknown},
	}
	if d := diffOf(a, "", slow("9s")); d.Scope != api.ScopeConnected || d.Compared != 1 || len(d.Proxies) != 1 ||
		d.Proxies[0].Name != "web" {
		t.Errorf("connected: %+v", d)
	}
	if d := diffOf(a, "", strings.Replace(web, "name: web", "name: new", 1)); len(d.Proxies) != 1 ||
		d.Proxies[0].Action != api.ActionCreated {
		t.Errorf("a client without a Dataplane gets one: %+v", d.Proxies)
	}
	if d := diffOf(a, "?dataplane=svc-1", slow("9s")); d.Scope != api.ScopeNamed || d.Compared != 1 ||
		d.Proxies[0].Name != "svc-1" {
		t.Errorf("named: %+v", d)
	}
	if d := diffOf(a, "?mesh=default&omit=items&omit=patch", slow("9s")); len(d.Proxies) != 1 ||
		len(d.Proxies[0].Config.Items)+len(d.Proxies[0].Config.Patch) > 0 || len(d.Proxies[0].Config.Summary) == 0 {
		t.Errorf("omitted: %+v", d)
	}
	if d := diffOf(a, "?delete=mt/default/t1", ""); !d.Changed || d.Resources[0].Action != api.ActionDeleted {
		t.Errorf("deleted: %+v", d)
	}
	if d := diffOf(a, "", "{type: Mesh, name: shop}\n---\n{type: Dataplane, mesh: shop, name: x, networking: {address: "+
		"192.0.2.1, inbound: [{port: 80, tags: {kuma.io/service: x}}]}}"); d.Changed || len(d.Resources) != 2 {
		t.Errorf("another mesh: %+v", d)
	}

	// A write counts even if no pass has processed it yet.
	a.put(store.Source{Kind: store.SourceFile, Detail: "/r/a.yaml"}, slow("9s"))
	if d := diffOf(a, "", slow("9s")); d.Changed {
		t.Errorf("compared with an old state: %+v", d)
	}
}

func TestDiffShadow(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, services+"\n---\n"+slow("5s"))
	a.reconcile()
	if d := diffOf(a, "?shadow=true", ""); d.Changed || len(d.Resources) > 0 {
		t.Errorf("there is no shadow policy: %+v", d)
	}
	quiet := slow("9s", "name: t1", "name: a-quiet, labels: {kuma.io/effect: shadow}")
	if d := diffOf(a, "", quiet); d.Changed || !d.Resources[0].Shadow || d.Resources[0].Action != api.ActionCreated {
		t.Errorf("a shadow policy: %+v", d)
	}
	fromFile := a.do("POST", "/v1/diff?shadow=true", quiet)
	a.want(fromFile, 200, `"changed":true`, `"action":"created","shadow":true`)
	a.put(store.Source{Kind: store.SourceAPI}, quiet)
	a.reconcile()
	stored := a.do("POST", "/v1/diff?shadow=true", "")
	if strings.Replace(fromFile.body, `"action":"created","shadow":true`, `"action":"activated","shadow":true`,
		1) != stored.body {
		t.Errorf("from a file\n%s\nstored\n%s", fromFile.body, stored.body)
	}
	// The patch is that of _config.
	var d api.Diff
	if err := json.Unmarshal([]byte(stored.body), &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Proxies {
		var c api.Config
		if err := json.Unmarshal([]byte(a.do("GET", "/meshes/default/dataplanes/"+p.Name+"/_config?shadow=true&include=diff",
			"").body), &c); err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(c.Diff)
		if got, _ := json.Marshal(p.Config.Patch); string(got) != string(want) {
			t.Errorf("%s: the patch is\n%s, that of _config\n%s", p.Name, got, want)
		}
	}
}

func TestDiffFaults(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, services+"\n---\n"+slow("5s"))
	a.reconcile()
	for query, parts := range map[string][]string{
		"?shadow=1":            {`"field":"shadow"`},
		"?mesh=":               {`"field":"mesh"`},
		"?mesh=a&mesh=b":       {`"field":"mesh"`},
		"?dataplane=":          {`"field":"dataplane"`},
		"?omit=all":            {`"field":"omit"`, "use one of items, patch"},
		"?delete=":             {`"field":"delete"`},
		"?delete=x/y/z":        {`"field":"delete"`, "x is not a kind"},
		"?delete=mt/t1":        {`"field":"delete"`, "TYPE/MESH/NAME"},
		"?delete=mt/default/":  {`"field":"delete"`},
		"?delete=mt/default/z": nil,
	} {
		status := 400
		if parts == nil {
			status, parts = 404, []string{"MeshTimeout/default/z does not exist"}
		}
		a.want(a.do("POST", "/v1/diff"+query, slow("9s")), status, parts...)
	}
	for body, parts := range map[string][]string{
		"":                                  {"empty"},
		"# nothing":                         {"no document"},
		"{":                                 {"/problems/invalid-resource"},
		slow("9x") + "\n---\n{a: b}":        {"connectionTimeout", `document 2`},
		slow("9s") + "\n---\n" + slow("8s"): {"is in the stream twice"},
		"{type: Mesh, name: m, labels: {kuma.io/effect: shadow}}": {"kuma.io/effect"},
	} {
		a.want(a.do("POST", "/v1/diff", body), 400, parts...)
	}
	a.want(a.do("POST", "/v1/diff", slow("9s", "mesh: default", "mesh: nope")), 404, `mesh \"nope\" does not exist`,
		"MeshTimeout/nope/t1")
	a.want(a.do("POST", "/v1/diff?mesh=nope", slow("9s")), 404, `mesh \"nope\" does not exist`)
	a.want(a.do("POST", "/v1/diff?dataplane=nope", slow("9s")), 404, `no mesh has a dataplane \"nope\"`)
	a.want(a.do("POST", "/v1/diff?dataplane=nope&mesh=default", slow("9s")), 404,
		`mesh \"default\" has no dataplane \"nope\"`)
	a.want(a.do("POST", "/v1/diff?delete=Mesh/default", ""), 409, "in-use", "still has")
	a.want(a.do("POST", "/v1/diff?delete=mt/default/t1", slow("9s")), 400, "to be deleted")
	a.want(a.do("GET", "/v1/diff", ""), 405)
}

// TestDiffFailing compares a proxy whose config cannot be made afterwards.
func TestDiffFailing(t *testing.T) {
	a := start(t, func(o *httpapi.Options) {
		o.Proxies = func() []api.ProxyStatus {
			return []api.ProxyStatus{{Mesh: "default", Name: "web", Flavor: node.FlavorGRPC, State: api.StateServing}}
		}
	})
	a.put(store.Source{Kind: store.SourceAPI}, services)
	a.reconcile()
	d := diffOf(a, "", "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}")
	if !d.Changed || len(d.Proxies) != 1 || d.Proxies[0].Action != api.ActionFailed ||
		!strings.Contains(d.Proxies[0].Error, "gRPC") {
		t.Errorf("%+v", d)
	}
	// A client that no policy acts on has no rules that could change.
	if d := diffOf(a, "", slow("9s")); d.Changed || len(d.Proxies) > 0 || d.Compared != 1 {
		t.Errorf("%+v", d)
	}
}

// TestDryRunTellsDiff checks that the dry run of every kind of write returns the changes on
// proxies.
func TestDryRunTellsDiff(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, services+"\n---\n"+slow("5s"))
	a.put(store.Source{Kind: store.SourceAPI}, slow("6s"))
	if got := a.do("POST", "/v1/apply?dryRun=true", slow("9s")); got.status != 200 ||
		strings.Contains(got.body, `"diff"`) {
		t.Errorf("before the first pass: %+v", got)
	}
	a.reconcile()
	rev := a.store.History(resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: "t1"})[0].Revision
	for _, got := range []answer{
		a.do("POST", "/v1/apply?dryRun=true", slow("9s")),
		a.do("PUT", "/meshes/default/meshtimeouts/t1?dryRun=true", slow("9s")),
		a.do("DELETE", "/meshes/default/meshtimeouts/t1?dryRun=true", ""),
		a.do("POST", "/v1/rollback",
			fmt.Sprintf(`{"type":"mt","mesh":"default","name":"t1","revision":%d,"dryRun":true}`, rev)),
	} {
		a.want(got, 200, `"dryRun":true`, `"diff":{"changed":true`, `"path":"connectTimeout","before":"6s"`)
	}
	a.want(a.do("GET", "/meshes/default/meshtimeouts/t1", ""), 200, `"connectionTimeout":"6s"`)
	if got := a.do("POST", "/v1/apply", slow("9s")); strings.Contains(got.body, `"diff"`) {
		t.Error("a diff of what was written")
	}
}

// TestDiffBounds compares more proxies than the response lists, and more than causes are computed
// for.
func TestDiffBounds(t *testing.T) {
	now := services + "\n---\n" + strings.NewReplacer("web", "web-2", "10.1.0.3", "10.1.0.4", "10003", "10004").
		Replace(services[strings.LastIndex(services, "{type: Dataplane"):])
	c := change.Question{Set: resource.NewSet(decode(t, now)), NewMesh: newMesh, Connected: []generate.ProxyID{
		{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy}, {Mesh: "default", Name: "web-2", Flavor: node.FlavorEnvoy}},
		Put: decode(t, slow("9s")+"\n---\n{type: MeshRetry, mesh: default, name: r, spec: {to: [{targetRef: {kind: Mesh}, "+
			"default: {http: {numRetries: 3}}}]}}")}
	compare := func() []api.ProxyDiff {
		d, err := diffFor(context.Background(), c)
		if err != nil || len(d.Proxies) != 2 || !d.Changed {
			t.Fatalf("%+v, %v", d, err)
		}
		return d.Proxies
	}
	for _, p := range compare() {
		if p.Truncated || p.Unattributed {
			t.Errorf("%s: %+v", p.Name, p)
		}
	}
	c.MaxTried = 1
	switch ps := compare(); {
	case ps[0].Unattributed || len(ps[0].Policies) != 2:
		t.Errorf("the first: %+v", ps[0])
	case !ps[1].Unattributed || ps[1].Truncated || len(ps[1].Config.Items) == 0:
		// it has an outbound that the first does not have
		t.Errorf("the second: %+v", ps[1])
	}
	c.MaxTold = 1
	switch ps := compare(); {
	case ps[0].Truncated || len(ps[0].Config.Items) == 0:
		t.Errorf("the first: %+v", ps[0])
	case !ps[1].Truncated || len(ps[1].Config.Items)+len(ps[1].Config.Patch)+len(ps[1].Rules.Items) > 0 ||
		len(ps[1].Config.Summary) == 0 || ps[1].Action != api.ActionChanged:
		t.Errorf("the second: %+v", ps[1])
	}

	var b strings.Builder
	for i := range 65 {
		b.WriteString(slow("9s", "t1", fmt.Sprintf("t%d", i)) + "\n---\n")
	}
	c = change.Question{Set: c.Set, NewMesh: newMesh, Put: decode(t, b.String()), Dataplane: "web"}
	d, err := diffFor(context.Background(), c)
	if err != nil || !d.Proxies[0].Unattributed || len(d.Proxies[0].Config.Items[0].By) > 0 {
		t.Errorf("more resources than are tried: %+v, %v", d, err)
	}
}

// TestDiffEnds ends a comparison with its context, and lets one wait for another.
func TestDiffEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	set := resource.NewSet(decode(t, services))
	if _, err := diffFor(ctx, change.Question{Set: set, Put: decode(t, slow("9s")), NewMesh: newMesh}); err == nil ||
		err != ctx.Err() {
		t.Errorf("the error is %v", err)
	}
	_, err := diffFor(context.Background(), change.Question{Set: set, Put: decode(t, slow("9s")),
		NewMesh: func(*resource.Set, string, *generate.Mesh) (*generate.Mesh, error) {
			return nil, fmt.Errorf("no mesh today")
		}})
	if err == nil || err.Error() != "no mesh today" {
		t.Errorf("the error is %v", err)
	}

	entered, leave := make(chan struct{}, 8), make(chan struct{})
	a := start(t, func(o *httpapi.Options) {
		o.NewMesh = func(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
			entered <- struct{}{}
			<-leave
			return newMesh(set, name, prev)
		}
	})
	a.put(store.Source{Kind: store.SourceAPI}, services)
	a.reconcile()
	done := make(chan answer)
	go func() { done <- a.do("POST", "/v1/diff", slow("9s")) }()
	<-entered // the first compares
	req, err := http.NewRequest("POST", a.base+"/v1/diff", strings.NewReader(slow("9s")))
	if err != nil {
		t.Fatal(err)
	}
	gone, giveUp := context.WithCancel(context.Background())
	second := make(chan error)
	go func() {
		_, err := a.http.Do(req.WithContext(gone))
		second <- err
	}()
	giveUp()
	if err := <-second; err == nil {
		t.Error("the second is answered while the first compares")
	}
	close(leave)
	a.want(<-done, 200, `"changed":true`)
}
