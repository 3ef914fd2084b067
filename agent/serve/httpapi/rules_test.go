package httpapi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// TestRulesDocuments asks for the rules of a dataplane over the socket, in the cases of
// testdata/rules: the comment's last line is MESH/NAME and the query; the document must be the
// file's, byte by byte but for the indentation.
func TestRulesDocuments(t *testing.T) {
	kindtest.Cases(t, "testdata/rules/*.txtar", func(t *testing.T, file string, ar *txtar.Archive) {
		if len(ar.Files) != 2 || ar.Files[0].Name != "resources.yaml" || ar.Files[1].Name != "rules.json" {
			t.Fatal("a case has resources.yaml and rules.json")
		}
		lines := strings.Split(strings.TrimSpace(string(ar.Comment)), "\n")
		dataplane, query, _ := strings.Cut(lines[len(lines)-1], "?")
		in, name, _ := strings.Cut(dataplane, "/")
		a := start(t)
		a.put(store.Source{Kind: store.SourceAPI}, string(ar.Files[0].Data))
		a.reconcile()
		got := a.do("GET", "/meshes/"+in+"/dataplanes/"+name+"/_rules?"+query, "")
		a.want(got, 200)
		var b bytes.Buffer
		if err := json.Indent(&b, []byte(got.body), "", " "); err != nil {
			t.Fatal(err)
		}
		if os.Getenv("UPDATE_GOLDEN") != "" {
			ar.Files[1].Data = b.Bytes()
			if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if want := string(ar.Files[1].Data); b.String() != want {
			t.Errorf("got\n%s\nwant\n%s", b.String(), want)
		}
	})
}

func TestRules(t *testing.T) {
	a := start(t)
	const at = "/meshes/default/dataplanes/web/_rules"
	if got := a.do("GET", at, ""); got.status != 503 || !strings.Contains(got.body, "not-ready") {
		t.Errorf("before the first reconciliation: %+v", got)
	}
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+web)
	a.reconcile()
	a.want(a.do("GET", at, ""), 200, `"httpMatches":[]`, `"rules":[]}`)
	a.put(store.Source{Kind: store.SourceAPI}, timeout("5s"))
	a.reconcile()
	plain := a.do("GET", at, "")
	a.want(plain, 200, `"conf":{"connectionTimeout":"5s"}`)
	for _, piece := range []string{`"diff"`, `"fields"`, `"proxyRule"`} {
		if strings.Contains(plain.body, piece) {
			t.Errorf("%s, which nobody asked for: %s", piece, plain.body)
		}
	}
	if second := a.do("GET", at+"?shadow=true", ""); second.body != plain.body {
		t.Error("two answers differ")
	}
	for _, q := range []string{"?include=diff", "?shadow=false&include=diff", "?shadow=true&include=diff"} {
		a.want(a.do("GET", at+q, ""), 200, `"diff":[]`)
	}
	a.want(a.do("GET", at+"?include=fields", ""), 200,
		`"fields":[{"path":"connectionTimeout","value":"5s","by":[{"type":"MeshTimeout","mesh":"default","name":"t1","field":"spec.to[0].default"}],"over":[]}]`)
	a.want(a.do("GET", at+"?include=fields,diff", ""), 200, `"fields"`, `"diff":[]`)
	for _, q := range []string{
		"?shadow=1", "?shadow=", "?shadow=true&shadow=true", "?include=all", "?include=", "?include=diff,",
	} {
		field, _, _ := strings.Cut(q[1:], "=")
		a.want(a.do("GET", at+q, ""), 400, `"field":"`+field+`"`)
	}
	a.want(a.do("GET", "/meshes/nope/dataplanes/web/_rules", ""), 404, `mesh \"nope\"`)
	a.want(a.do("GET", "/meshes/default/dataplanes/nope/_rules", ""), 404, `no dataplane \"nope\"`)
	a.want(a.do("PUT", at, "{}"), 405)

	// Offline gives the same document.
	m, err := generate.NewMesh(a.store.Snapshot().Set(), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	doc, warnings, err := explain.ProxyRules(m, "web", explain.RulesOptions{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if string(b)+"\n" != plain.body {
		t.Errorf("the rules computed offline are others: %s", b)
	}

	// A mesh without a policy index has none.
	doc, _, err = explain.ProxyRules(&generate.Mesh{View: m.View}, "web", explain.RulesOptions{})
	if err != nil || len(doc.Rules) > 0 {
		t.Errorf("%+v, %v", doc, err)
	}
}

func TestPolicies(t *testing.T) {
	a := start(t)
	const at = "/v1/dataplanes/default/web/policies"
	a.want(a.do("GET", at, ""), 503)
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+web)
	a.reconcile()
	a.want(a.do("GET", at, ""), 200,
		`{"mesh":"default","name":"web","total":0,"items":[],"reach":{"total":1,"reachable":1,"auto":false,`)
	a.put(store.Source{Kind: store.SourceAPI}, timeout("5s")+`
---
{type: Timeout, name: old, sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}], conf: {connectTimeout: 1s}}
---
{type: CircuitBreaker, name: cb, sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}], conf: {thresholds: {maxConnections: 5}}}
---
{type: MeshTimeout, name: elsewhere, spec: {targetRef: {kind: MeshService, name: other}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}}
---
{type: MeshTimeout, name: shadow, labels: {kuma.io/effect: shadow}, spec: {to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}}
`)
	a.reconcile()
	got := a.do("GET", at, "")
	a.want(got, 200)
	var ps explain.Policies
	if err := json.Unmarshal([]byte(got.body), &ps); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range ps.Items {
		s := p.Type + "/" + p.Name + " " + p.Effect
		if !p.Selected {
			s += " ended"
		}
		for _, d := range p.Outbounds {
			s += " " + d.String()
		}
		lines = append(lines, s)
	}
	if got, want := strings.Join(lines, ", "),
		"MeshTimeout/t1 all web, Timeout/old none ended, CircuitBreaker/cb all web"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	a.want(a.do("GET", "/v1/dataplanes/nope/web/policies", ""), 404, `mesh \"nope\"`)
	a.want(a.do("GET", "/v1/dataplanes/default/nope/policies", ""), 404, `no dataplane \"nope\"`)
}

// TestLegacyInPart explains legacy policies that targetRef policies supersede for some destinations
// or fields.
func TestLegacyInPart(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+`
---
{type: Dataplane, mesh: default, name: web, networking: {address: 192.0.2.1, inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}],
  outbound: [{port: 10001, tags: {kuma.io/service: backend}}, {port: 10002, tags: {kuma.io/service: redis}}]}}
---
{type: Dataplane, mesh: default, name: backend, networking: {address: 192.0.2.2, inbound: [{port: 80, tags: {kuma.io/service: backend, kuma.io/protocol: http}}]}}
---
{type: Dataplane, mesh: default, name: redis, networking: {address: 192.0.2.3, inbound: [{port: 80, tags: {kuma.io/service: redis}}]}}
---
{type: MeshHTTPRoute, name: r, spec: {to: [{targetRef: {kind: MeshService, name: backend}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {}}]}]}}
---
{type: MeshCircuitBreaker, name: c, spec: {to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 5}}}]}}
---
{type: Timeout, name: t, sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}], conf: {connectTimeout: 1s}}
---
{type: CircuitBreaker, name: cb, sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}], conf: {thresholds: {maxConnections: 6}, interval: 3s}}
---
{type: TrafficRoute, name: tr, sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}], conf: {destination: {kuma.io/service: "*"}}}
`)
	a.reconcile()
	for what, want := range map[string]string{
		"timeouts/t": "backend: connectTimeout by MeshHTTPRoute/r; redis: connectTimeout",
		"circuit-breakers/cb": "backend: interval by MeshHTTPRoute/r, thresholds.maxConnections by MeshHTTPRoute/r; " +
			"redis: interval, thresholds.maxConnections by MeshCircuitBreaker/c",
		"traffic-routes/tr": `backend: destination["kuma.io/service"] by MeshHTTPRoute/r; redis: destination["kuma.io/service"]`,
	} {
		kind, name, _ := strings.Cut(what, "/")
		got := a.do("POST", "/v1/explain", `{"policy":{"type":"`+kind+`","name":"`+name+`","dataplane":"web"}}`)
		a.want(got, 200, `"selected":true`, `"effect":"part"`)
		var x explain.Policy
		if err := json.Unmarshal([]byte(got.body), &x); err != nil {
			t.Fatal(err)
		}
		var places []string
		for _, it := range x.Items {
			for _, p := range it.Places {
				var fields []string
				for _, f := range p.Fields {
					s := f.Path
					for _, by := range f.By {
						s += " by " + by.Type + "/" + by.Name
					}
					fields = append(fields, s)
				}
				places = append(places, p.Outbounds[0].String()+": "+strings.Join(fields, ", "))
			}
		}
		if s := strings.Join(places, "; "); s != want {
			t.Errorf("%s\ngot  %s\nwant %s", what, s, want)
		}
	}
}

func TestExplain(t *testing.T) {
	a := start(t)
	ask := func(body string) answer { return a.do("POST", "/v1/explain", body) }
	question := `{"policy":{"type":"mt","mesh":"default","name":"t1","dataplane":"web"}}`
	a.want(ask(question), 503)
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+web+"\n---\n"+timeout("5s"))
	a.reconcile()
	got := ask(question)
	a.want(got, 200, `"policy":{"type":"MeshTimeout","mesh":"default","name":"t1"}`, `"selected":true`, `"effect":"all"`,
		`"items":[{"field":"spec.to[0].default","targetRef":{"kind":"Mesh"},"about":"Mesh","effect":"all","places":[{"on":"outbounds","outbounds":[{"name":"web"}]`,
		`{"path":"connectionTimeout","value":"5s","effect":"all","by":[]}`)
	a.want(ask(strings.Replace(question, `"mesh":"default",`, "", 1)), 200, got.body)

	a.put(store.Source{Kind: store.SourceAPI}, timeout("6s"))
	a.want(ask(question), 200, `"selected":false`, "the policy changed after", `"items":[]`)

	for body, parts := range map[string][]string{
		``:                                     {"empty"},
		`{}`:                                   {`"field":"policy"`},
		`{"policy":[]}`:                        {"JSON"},
		`{"policy":{"type":"mt","named":"x"}}`: {"named"},
		`{"connection":{}}`:                    {"connection"},
		question + question:                    {"more than one"},
		`{"policy":{"type":"nope","name":"t1","dataplane":"w"}}`: {`"field":"policy.type"`, `\"nope\" is not a kind`},
		`{"policy":{"type":"dp","name":"web","dataplane":"web"}}`: {`"field":"policy.type"`,
			"Dataplane is not a policy kind"},
		`{"policy":{"type":"mt","dataplane":"web"}}`: {`"field":"policy.name"`},
		`{"policy":{"type":"mt","name":"t1"}}`:       {`"field":"policy.dataplane"`},
	} {
		a.want(ask(body), 400, parts...)
	}
	a.want(ask(strings.Replace(question, "t1", "t9", 1)), 404, "MeshTimeout/default/t9 does not exist")
	a.want(ask(strings.Replace(question, `"web"`, `"nope"`, 1)), 404, `no dataplane \"nope\"`)
	a.want(ask(strings.Replace(question, `"mesh":"default"`, `"mesh":"nope"`, 1)), 404, `mesh \"nope\"`)
	a.want(a.do("GET", "/v1/explain", ""), 405)
}
