package httpapi_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// TestAllHistory reads the revisions of all resources, some of which are on disk.
func TestAllHistory(t *testing.T) {
	kinds := registry(t)
	s, err := store.Open(store.Options{Path: filepath.Join(t.TempDir(), "db"), Encode: resource.Marshal,
		Decode: func(b []byte) (*resource.Resource, error) {
			list, faults := kinds.Decode("", b)
			if len(list) != 1 {
				return nil, errors.Join(faults.Err(), errors.New("not one resource"))
			}
			return list[0], nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := start(t, func(o *httpapi.Options) { o.Store = s })
	a.put(store.Source{Kind: store.SourceFile, Detail: "/x.yaml"}, meshDoc)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"5s", "6s"} {
		a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout(d))
	}
	a.do("DELETE", "/meshes/default/meshtimeouts/t1", "")
	a.put(store.Source{Kind: store.SourceFile, Detail: "/x.yaml"}, web)
	list := func(query string) (out string) {
		t.Helper()
		got := a.do("GET", "/v1/history"+query, "")
		a.want(got, 200)
		var p page[api.HistoryItem]
		if err := json.Unmarshal([]byte(got.body), &p); err != nil {
			t.Fatal(err)
		}
		for _, x := range p.Items {
			out += " " + x.Type + "/" + x.Name + ":" + x.Action
			if x.Resource != nil || x.Time.IsZero() || x.Action == api.ActionChanged && len(x.Fields) != 1 {
				t.Errorf("%+v", x)
			}
		}
		return strings.TrimSpace(out)
	}
	const timeouts = "MeshTimeout/t1:deleted MeshTimeout/t1:changed MeshTimeout/t1:created"
	for query, want := range map[string]string{
		"":                                "Dataplane/web:created " + timeouts + " Mesh/default:created",
		"?size=2&offset=1":                "MeshTimeout/t1:deleted MeshTimeout/t1:changed",
		"?type=mt":                        timeouts,
		"?name=web&mesh=default":          "Dataplane/web:created",
		"?mesh=other":                     "",
		"?source=file":                    "Dataplane/web:created Mesh/default:created",
		"?source=file:/x.yaml&type=mesh":  "Mesh/default:created",
		"?source=file:/y.yaml":            "",
		"?author=nobody":                  "",
		"?since=1h&source=api":            timeouts,
		"?since=2999-01-01T00:00:00Z":     "",
		"?type=MeshTimeout&size=1":        "MeshTimeout/t1:deleted",
		"?type=MeshTimeout&source=api:no": "",
	} {
		if got := list(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	a.want(a.do("GET", "/v1/history?type=x", ""), 400, "give the name of a kind")
	a.want(a.do("GET", "/v1/history?since=x", ""), 400, "give a duration")
	a.want(a.do("GET", "/v1/history?size=1", ""), 200, `"total":5`, `"next":"/v1/history?offset=1\u0026size=1"`)
}

// TestAllHistoryPermissions: the history has only resources that the sender may get.
func TestAllHistoryPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, option := withEvents(t)
		a, stop := serveInMemory(t, option, withRole(t,
			access.Allow{Kinds: []string{"MeshTimeout"}, Meshes: []string{"default"}, Verbs: []string{"get"}}))
		a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+timeout("5s"))
		got := a.do("GET", "/v1/history", "", "Authorization: Bearer good")
		a.want(got, 200, `"total":1`, "MeshTimeout")
		stop()
	})
}

// TestPool shows what the members of a pool report, and which ones are silent.
func TestPool(t *testing.T) {
	pool := &quarrel{crowd: crowd{size: 3}, own: []api.Conflict{conflict("1", "default")}, answers: []api.NodeAnswer{
		{Node: "node-000", Body: []byte(`{"proxies":3,"problems":1,"conflicts":2}`)},
		{Node: "node-001", Missing: "it has not responded"}, {Node: "node-002", Body: []byte("x")}}}
	a := start(t, func(o *httpapi.Options) { o.Pool = pool })
	a.reconcile(api.Problem{Resource: "Mesh/default", Severity: api.SeverityError, Reason: "r"})
	got := a.do("GET", "/v1/pool", "")
	a.want(got, 200, `"conflicts":1,"time":"`)
	var v api.PoolView
	if err := json.Unmarshal([]byte(got.body), &v); err != nil || time.Since(v.Time) > time.Minute {
		t.Fatalf("%v: %s", err, got.body)
	}
	text := ""
	for _, n := range v.Nodes {
		numbers, _ := json.Marshal([]*int{n.Proxies, n.Problems, n.Conflicts})
		text += n.Name + " " + string(numbers) + " " + n.Error + "\n"
	}
	if want := "here [0,1,1] \nnode-000 [3,1,2] \nnode-001 [null,null,null] it has not responded\n" +
		"node-002 [null,null,null] its answer is invalid, or its version does not answer this question\n" +
		"gone [null,null,null] it was not asked, because it is dead\n" +
		"away [null,null,null] it was not asked, because it is left\n"; text != want {
		t.Errorf("got\n%swant\n%s", text, want)
	}
	if b := a.srv.Answer(t.Context(), []byte(`{"ask":"pool"}`)); string(b) != `{"proxies":0,"problems":1,"conflicts":1}` {
		t.Errorf("the answer to another node: %s", b)
	}
	alone := start(t)
	alone.want(alone.do("GET", "/v1/pool", ""), 200, `{"nodes":[],"conflicts":0,`)
}

// TestRefusals lists the refused streams of proxies that the sender may inspect.
func TestRefusals(t *testing.T) {
	refused := func(o *httpapi.Options) {
		o.Refused = func() api.Refusals {
			return api.Refusals{Total: 9, Peer: "uid=7", NodeID: "two.pay", Reason: "why", Streams: []api.RefusedStream{
				{NodeID: "one.web", User: "uid 7", Peer: access.Peer{Local: true, UID: 7}, Cause: "denied", Reason: "one"},
				{NodeID: "two.pay", User: "uid 7", Cause: "denied", Reason: "two"}}}
		}
	}
	a := start(t, refused)
	a.want(a.do("GET", "/v1/refusals", ""), 200, `"total":9`, `"peer":"uid=7"`, `"nodeID":"one.web"`, `"nodeID":"two.pay"`,
		`"command":"nearside check --bootstrap FILE --user 7"`)
	synctest.Test(t, func(t *testing.T) {
		_, option := withEvents(t)
		a, stop := serveInMemory(t, option, refused, withRole(t,
			access.Allow{Kinds: []string{"Dataplane"}, Meshes: []string{"one"}, Verbs: []string{"inspect"}}))
		got := a.do("GET", "/v1/refusals", "", "Authorization: Bearer good")
		a.want(got, 200, "one.web")
		if strings.Contains(got.body, "pay") || strings.Contains(got.body, "uid=7") {
			t.Errorf("another mesh is visible: %s", got.body)
		}
		stop()
	})
}
