package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

func TestPaths(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc)
	for path, piece := range map[string]string{
		"/nothing":                           `there is no kind \"nothing\"`,
		"/v1/nothing":                        `no kind \"v1\"`,
		"/v1/nothing/at/all":                 "docs/api.md",
		"/meshes/default/meshes/x":           "belongs to no mesh",
		"/dataplanes/web":                    "/meshes/{mesh}/dataplanes/web",
		"//meshes":                           "not clean",
		"/meshes/../meshes":                  "not clean",
		"/meshes/nope/dataplanes":            `mesh \"nope\"`,
		"/meshes/default/dataplanes/%2e%2e":  "not clean",
		"/meshes/default/dataplanes/a%2fb":   "a/b does not exist",
		"/meshes/default/dataplanes/%ff%00":  "does not exist",
		"/v1/history/dataplanes/default/web": "does not exist",
		"/v1/dataplanes/default/web/status":  "no dataplane",
		"/v1/dataplanes/nope/web/status":     `mesh \"nope\"`,
	} {
		a.want(a.do("GET", path, ""), 404, piece)
	}
	got := a.do("POST", "/meshes/default", meshDoc)
	a.want(got, 405, "DELETE, GET, HEAD, PUT")
	if got.header.Get("Allow") != "DELETE, GET, HEAD, PUT" {
		t.Errorf("Allow: %q", got.header.Get("Allow"))
	}
	a.want(a.do("GET", "/v1/apply", ""), 405)
	if got := a.do("HEAD", "/meshes/default", ""); got.status != 200 || got.body != "" {
		t.Errorf("HEAD: %+v", got)
	}
	a.want(a.do("GET", "/", ""), 200, `"product":"nearside"`, `"tagline":"nearside"`, `"instance":"i1"`)
	a.want(a.do("GET", "/metrics", ""), 200)
	a.want(a.do("POST", "/metrics", ""), 405)
}

func TestLists(t *testing.T) {
	a := start(t, func(o *httpapi.Options) { o.Limits.PageSize = 2 })
	var docs bytes.Buffer
	for _, m := range []string{"default", "other"} {
		fmt.Fprintf(&docs, "---\n{type: Mesh, name: %s}\n", m)
		for i := range 5 {
			fmt.Fprintf(&docs, "---\n{type: Dataplane, mesh: %s, name: d%d, networking: {address: 192.0.2.1, "+
				"inbound: [{port: 80, tags: {kuma.io/service: a}}]}}\n", m, 4-i)
		}
	}
	a.put(store.Source{Kind: store.SourceAPI}, docs.String())
	var names []string
	path := "/dataplanes?meta=true"
	for pages := 0; path != ""; pages++ {
		if pages > 10 {
			t.Fatal("next never ends")
		}
		got := a.do("GET", path, "")
		a.want(got, 200, `"total":10`)
		var l struct {
			Items []api.Item
			Next  *string
		}
		if err := json.Unmarshal([]byte(got.body), &l); err != nil {
			t.Fatal(err)
		}
		for _, it := range l.Items {
			var r struct{ Mesh, Name string }
			if err := json.Unmarshal(it.Resource, &r); err != nil {
				t.Fatal(err)
			}
			if it.Meta.Source != "api" || it.Meta.Revision == 0 {
				t.Errorf("meta %+v", it.Meta)
			}
			names = append(names, r.Mesh+"/"+r.Name)
		}
		path = ""
		if l.Next != nil {
			path = *l.Next
		}
	}
	want := []string{"default/d0", "default/d1", "default/d2", "default/d3", "default/d4", "other/d0", "other/d1",
		"other/d2", "other/d3", "other/d4"}
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	a.want(a.do("GET", "/meshes/other/dataplanes?size=3&offset=4", ""), 200, `"total":5`, `"name":"d4"`, `"next":null`)
	a.want(a.do("GET", "/meshes/other/dataplanes?offset=99", ""), 200, `"items":[]`)
	for _, q := range []string{
		"size=0", "size=-1", "size=x", "size=10001", "offset=-1", "offset=99999999999999999999", "meta=maybe",
		"size=1&size=2",
	} {
		field, _, _ := strings.Cut(q, "=")
		a.want(a.do("GET", "/dataplanes?"+q, ""), 400, `"field":"`+field+`"`)
	}
	a.want(a.do("GET", "/v1/names?kind=dp&mesh=other&prefix=d4", ""), 200, `{"names":["d4"]}`)
	a.want(a.do("GET", "/v1/names?kind=Mesh", ""), 200, `{"names":["default","other"]}`)
	a.want(a.do("GET", "/v1/names?prefix=meshtime", ""), 200, `{"names":["meshtimeouts"]}`)
	a.want(a.do("GET", "/v1/names?kind=nope", ""), 400, `"field":"kind"`)
	a.want(a.do("GET", "/v1/kinds", ""), 200, `{"kind":"Mesh","plural":"meshes","global":true}`)
	a.want(a.do("GET", "/v1/schemas/mt", ""), 200, `"title":"MeshTimeout"`)
	a.want(a.do("GET", "/v1/schemas/nothing", ""), 404, "there is no kind")
}

// TestOverview compares the overview of a dataplane with the one in the list.
func TestOverview(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+web)
	a.reconcile()
	one := a.do("GET", "/meshes/default/dataplanes/web/_overview", "")
	list := a.do("GET", "/meshes/default/dataplanes/_overview", "")
	if one.status != 200 || !strings.Contains(one.body, `"type":"DataplaneOverview"`) ||
		!strings.Contains(list.body, strings.TrimSpace(one.body)) {
		t.Errorf("%d %s\n%s", one.status, one.body, list.body)
	}
	for _, path := range []string{"default/dataplanes/absent", "absent/dataplanes/web"} {
		if got := a.do("GET", "/meshes/"+path+"/_overview", ""); got.status != 404 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// TestKubernetesFormat reads resources as "kumactl export --format kubernetes" does.
func TestKubernetesFormat(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+web+`
---
{type: MeshTimeout, mesh: default, name: slow, labels: {team: a}, spec: {to: [{targetRef: {kind: Mesh},
  default: {connectionTimeout: 5s}}]}}
---
{type: Timeout, mesh: default, name: old, sources: [{match: {kuma.io/service: "*"}}],
  destinations: [{match: {kuma.io/service: "*"}}], conf: {connectTimeout: 5s}}
---
{apiVersion: kuma.io/v1alpha1, kind: MeshRetry, metadata: {name: often, namespace: shop},
  spec: {to: [{targetRef: {kind: Mesh}, default: {tcp: {maxConnectAttempt: 2}}}]}}
`)
	for path, pieces := range map[string][]string{
		"/meshes/default": {`"kind":"Mesh","metadata":{"name":"default","creation`},
		"/meshes/default/dataplanes/web": {`"metadata":{"name":"web","namespace":"kuma-system",`,
			`"mesh":"default","spec":{"networking":`},
		"/meshes/default/meshtimeouts/slow": {`{"apiVersion":"kuma.io/v1alpha1","kind":"MeshTimeout"`,
			`"namespace":"kuma-system"`, `"labels":{"kuma.io/mesh":"default","team":"a"}},"spec":{"to":`},
		"/meshes/default/timeouts/old":           {`{"name":"old","creationTimestamp"`, `"mesh":"default","spec":{"sources":`},
		"/meshes/default/meshretries/often.shop": {`"metadata":{"name":"often","namespace":"shop"`},
	} {
		for _, format := range []string{"k8s", "kubernetes"} {
			got := a.do("GET", path+"?format="+format, "")
			a.want(got, 200, pieces...)
			if strings.Contains(got.body, `"type":"Mesh`) {
				t.Errorf("%s: %s", path, got.body)
			}
		}
	}
	a.want(a.do("GET", "/meshes/default?format=universal", ""), 200, `"type":"Mesh"`)
	a.want(a.do("GET", "/meshes/default?format=xml", ""), 400, `"field":"format"`)
	a.want(a.do("GET", "/meshes/default?format=k8s&meta=true", ""), 400, `"field":"format"`)
	a.want(a.do("GET", "/meshes/none?format=k8s", ""), 404)
}
