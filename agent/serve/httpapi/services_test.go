package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

const servicesDoc = `{type: Mesh, name: default, meshServices: {mode: Everywhere}}
---
{type: Mesh, name: other}
---
{type: Dataplane, mesh: default, name: a-1, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: a, kuma.io/protocol: http}}]}}
---
{type: Dataplane, mesh: default, name: a-2, networking: {address: 10.0.0.2, inbound: [{port: 80, state: NotReady, tags: {kuma.io/service: a, kuma.io/protocol: http}}]}}
---
{type: MeshService, mesh: default, name: far-x7, labels: {kuma.io/display-name: far, kuma.io/zone: east, kuma.io/origin: global},
  spec: {selector: {dataplaneTags: {kuma.io/service: far}}, ports: [{port: 80, name: web}]}, status: {addresses: [{hostname: far.example}]}}
---
{type: MeshExternalService, mesh: default, name: out, spec: {match: {type: HostnameGenerator, port: 443, protocol: tcp}, endpoints: [{address: 192.0.2.1, port: 443}]}}
---
{type: HostnameGenerator, name: all, spec: {selector: {meshService: {matchLabels: {}}}, template: '{{ .DisplayName }}.{{ .Zone }}.mesh'}}
---
{type: HostnameGenerator, name: label, spec: {selector: {meshService: {matchLabels: {}}}, template: '{{ label "x" }}.mesh'}}
`

func withServices(t *testing.T) *testAPI {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, servicesDoc)
	a.reconcile()
	return a
}

// TestServices lists all services of a mesh: written, derived and tags.
func TestServices(t *testing.T) {
	a := withServices(t)
	var got api.Services
	list := func(query string) []string {
		t.Helper()
		got = api.Services{}
		r := a.do(http.MethodGet, "/v1/services"+query, "")
		if r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", query, r.status, r.body)
		}
		if err := json.Unmarshal([]byte(r.body), &got); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range got.Items {
			line := s.Kind + "/" + s.Name
			for _, p := range s.Ports {
				line += fmt.Sprintf(" %d/%s %s %d/%d", p.Port, p.Protocol, p.Cluster, p.Ready, p.Total)
			}
			for _, h := range s.Hostnames {
				line += " " + h.Reason + ":" + h.Hostname
			}
			out = append(out, line)
		}
		return out
	}
	want := []string{
		"MeshExternalService/out 443/tcp default_out__default_extsvc_443 ",
		"MeshService/a 80/http default_a___msvc_80 1/2 Generated:a.default.mesh TemplateError:",
		"MeshService/far-x7 80/tcp default_far__east_msvc_80 0/0 Generated:far.example Generated:far.east.mesh " +
			"TemplateError:",
		"ServiceTag/a 80/http a 1/2 Generated:a.mesh",
	}
	all := list("?mesh=default")
	if !strings.HasPrefix(all[0], want[0]) {
		t.Errorf("got %s, want %s…", all[0], want[0])
	}
	if diff := cmp.Diff(want[1:], all[1:]); diff != "" {
		t.Error(diff)
	}
	if s := got.Items[1]; !s.Derived || s.Labels["kuma.io/managed-by"] != "meshservice-generator" || len(s.VIPs) != 1 ||
		s.Hostnames[1].Message != "the service has no label x, which the template uses" ||
		s.Ports[0].Zones[0] != "default" {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff(all, list("")); diff != "" {
		t.Errorf("of all meshes: %s", diff)
	}
	if diff := cmp.Diff(want[3:], list("?kind=ServiceTag")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[2:3], list("?kind=meshservices&name=far-x7&mesh=default")); diff != "" {
		t.Error(diff)
	}
	if got := list("?mesh=other"); len(got) > 0 {
		t.Errorf("an empty mesh has %v", got)
	}
	first := list("?size=3&mesh=default")
	if len(first) != 3 || got.Total != 4 || got.Next == nil {
		t.Fatalf("a page has %v of %d, next %v", first, got.Total, got.Next)
	}
	if diff := cmp.Diff(all[3:], list(strings.TrimPrefix(*got.Next, "/v1/services"))); diff != "" || got.Next != nil {
		t.Errorf("the last page: %s, next %v", diff, got.Next)
	}
	for query, want := range map[string]int{
		"?mesh=none":       404,
		"?kind=dataplanes": 400,
		"?kind=nothing":    400,
		"?size=0":          400,
		"?offset=-1":       400,
	} {
		if r := a.do(http.MethodGet, "/v1/services"+query, ""); r.status != want {
			t.Errorf("%s: %d, want %d: %s", query, r.status, want, r.body)
		}
	}
}

// TestHostnamesOfService answers in the reference's form.
func TestHostnamesOfService(t *testing.T) {
	a := withServices(t)
	for path, want := range map[string]string{
		"meshservices/far-x7/_hostnames":      `{"total":2,"items":[{"hostname":"far.east.mesh","zones":[{"name":"east"}]},{"hostname":"far.example","zones":[{"name":"east"}]}]}`,
		"meshservices/a/_hostnames":           `{"total":1,"items":[{"hostname":"a.default.mesh","zones":[{"name":"default"}]}]}`,
		"meshexternalservices/out/_hostnames": `{"total":0,"items":[]}`,
	} {
		r := a.do(http.MethodGet, "/meshes/default/"+path, "")
		var got, wanted any
		if err := json.Unmarshal([]byte(r.body), &got); err != nil {
			t.Fatalf("%s: %d %s", path, r.status, r.body)
		}
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, got); diff != "" || r.status != 200 {
			t.Errorf("%s: %d %s", path, r.status, diff)
		}
	}
	for path, want := range map[string]int{
		"/meshes/default/meshservices/none/_hostnames":       404,
		"/meshes/none/meshservices/a/_hostnames":             404,
		"/meshes/default/nothings/a/_hostnames":              404,
		"/meshes/default/dataplanes/a-1/_hostnames":          400,
		"/meshes/default/meshmultizoneservices/a/_hostnames": 404,
	} {
		if r := a.do(http.MethodGet, path, ""); r.status != want {
			t.Errorf("%s: %d, want %d: %s", path, r.status, want, r.body)
		}
	}
	if r := start(t).do(http.MethodGet, "/v1/services", ""); r.status != http.StatusServiceUnavailable {
		t.Errorf("before the first reconciliation: %d %s", r.status, r.body)
	}
}

// TestServiceOfSilentProxy checks that a service is online only if the Envoy of a ready endpoint on
// this node is connected.
func TestServiceOfSilentProxy(t *testing.T) {
	var clients []api.ProxyStatus
	a := start(t, func(o *httpapi.Options) { o.Proxies = func() []api.ProxyStatus { return clients } })
	a.put(store.Source{Kind: store.SourceAPI}, servicesDoc)
	a.reconcile()
	for _, c := range []struct {
		client api.ProxyStatus
		want   string
	}{
		{api.ProxyStatus{}, `"status":"offline","dataplanes":{"total":2,"offline":2}`},
		{api.ProxyStatus{Mesh: "default", Name: "a-1"}, `"status":"offline","dataplanes":{"total":2,"offline":2}`},
		{api.ProxyStatus{Mesh: "default", Name: "a-2", Streams: 1}, `"status":"offline"`}, // not ready
		{api.ProxyStatus{Mesh: "default", Name: "a-1", Streams: 1},
			`"status":"partially_degraded","dataplanes":{"total":2,"online":1,"offline":1}`},
	} {
		clients = []api.ProxyStatus{c.client}
		a.want(a.do(http.MethodGet, "/meshes/default/service-insights", ""), http.StatusOK, `"name":"a"`, c.want)
	}
}
