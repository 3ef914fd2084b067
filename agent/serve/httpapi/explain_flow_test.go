package httpapi_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

// TestExplainFlows asks the API about connections and requests.
func TestExplainFlows(t *testing.T) {
	const docs = meshDoc + `
---
{type: Dataplane, mesh: default, name: client, networking: {address: 10.0.0.9, inbound: [{port: 80, tags: {kuma.io/service: client}}], outbound: [{port: 10001, tags: {kuma.io/service: server}}]}}
---
{type: Dataplane, mesh: default, name: server, networking: {address: 10.0.0.8, inbound: [{port: 80, tags: {kuma.io/service: server, kuma.io/protocol: http}}]}}
`
	a := start(t)
	ask := func(body string) answer { return a.do("POST", "/v1/explain", body) }
	request := `{"request":{"mesh":"default","from":"client","to":"server:80","path":"/x","headers":[{"name":"a","value":"b"}],"shadow":true}}`
	a.want(ask(request), 503)
	a.put(store.Source{Kind: store.SourceAPI}, docs)
	a.reconcile()
	got := ask(request)
	a.want(got, 200, `{"verdict":"allowed","reason":"forwarded to cluster server"`,
		`"listener":"outbound:127.0.0.1:10001"`,
		`"clusters":[{"name":"server","weight":1,"total":1,"pinned":false,"endpoints":1,"addresses":["10.0.0.8:80"],"request":{"method":"GET","host":"server","path":"/x","headers":[{"name":"a","value":"b"}`,
		`"field":"networking.outbound[0]","revision":2}`, `"servers":[{"verdict":"allowed"`,
		`"suggest":""`, `"shadow":{"verdict":"allowed"`)
	a.want(ask(strings.Replace(request, `"mesh":"default",`, "", 1)), 200, got.body)
	a.want(ask(`{"connection":{"from":"client","to":"127.0.0.1:7"}}`), 200, `"verdict":"closed"`, `"servers":[]`)

	// A response about a config whose revision has been replaced names no revision.
	a.put(store.Source{Kind: store.SourceAPI}, strings.Replace(docs, "10.0.0.9", "10.0.0.7", 1))
	if second := ask(request); strings.Contains(second.body, "revision") {
		t.Errorf("the response names a revision other than that of the config: %s", second.body)
	}

	for body, parts := range map[string][]string{
		`{"connection":{}}`:                                                {`"field":"connection.from"`},
		`{"request":{"to":"x:1"}}`:                                         {`"field":"request.from"`},
		`{"connection":{"from":"client"}}`:                                 {`"field":"connection.to"`, "HOST:PORT"},
		`{"connection":{"from":"client","to":"x:1","sni":"a"}}`:            {`"field":"connection.tls"`},
		`{"connection":{"from":"client","to":"x:1","path":"/"}}`:           {"path"},
		`{"request":{"from":"client","to":"x:1","path":"y"}}`:              {`"field":"request.path"`, `\"y\"`},
		`{"connection":{"from":"a","to":"b:1"},"request":{"from":"a"}}`:    {`"field":"policy"`, "only one of them"},
		`{"request":{"from":"client","to":"x:1","headers":[{"name":""}]}}`: {`"field":"request.headers[0]"`},
	} {
		a.want(ask(body), 400, parts...)
	}
	a.want(ask(`{"connection":{"from":"nobody","to":"x:1"}}`), 404, `no dataplane \"nobody\"`)
	a.want(ask(`{"connection":{"mesh":"nope","from":"client","to":"x:1"}}`), 404, `mesh \"nope\"`)
}
