package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// TestApplied asks how resources stand on proxies in all situations.
func TestApplied(t *testing.T) {
	a, set := startApplied(t)
	const last = 10 // revision
	bad := func(name, evidence string) api.Blame { return blames("MeshTimeout", name, evidence) }
	for _, test := range []struct {
		name    string
		proxies []rollout.Progress
		ask     string // type/name
		want    string
	}{
		{"nobody is connected", nil, "MeshTimeout/all", "applied 0/0"},
		{"all have it", []rollout.Progress{proxy("web", last), proxy("back", last)}, "MeshTimeout/all", "applied 2/2"},
		{"an older config has it too", []rollout.Progress{proxy("web", 5, publishedAt(last))}, "MeshTimeout/all",
			"applied 1/1"},
		{"one has not answered", []rollout.Progress{proxy("web", last), proxy("back", 4, publishedAt(last))},
			"MeshTimeout/all", "pending 1/2 late back"},
		{"one that is not touched has not answered",
			[]rollout.Progress{proxy("web", last), proxy("back", 4, publishedAt(last))}, "MeshTimeout/web", "applied 1/1"},
		{"one of another mesh has not answered", []rollout.Progress{proxy("web", 1, func(p *rollout.Progress) {
			p.Mesh = "other"
		})},
			"MeshTimeout/all", "applied 0/0"},
		{"a mesh concerns its proxies", []rollout.Progress{proxy("web", 0, publishedAt(last))}, "Mesh/default",
			"pending 0/1 late web"},
		{"and no others", []rollout.Progress{proxy("web", 0, publishedAt(last))}, "Mesh/other", "applied 0/0"},
		{"a dataplane concerns all of its mesh", []rollout.Progress{proxy("web", 2, publishedAt(last)), proxy("back", last)},
			"Dataplane/web", "pending 1/2 late web"},
		{"gone", []rollout.Progress{proxy("web", 1, in(api.StateDisconnected)), proxy("x", 0, in(api.StateUnknown))},
			"MeshTimeout/all", "applied 0/0"},
		{"not loaded", []rollout.Progress{proxy("web", 0, in(api.StateWaiting))}, "MeshTimeout/all", "pending 0/1 late web"},
		{"selects nothing", []rollout.Progress{proxy("web", last)}, "MeshTimeout/nobody", "unselected 0/0"},
		{"shadow", []rollout.Progress{proxy("web", last)}, "MeshTimeout/shade", "shadow 0/0"},
		{"replaced", []rollout.Progress{proxy("web", last)}, "Timeout/old", "replaced 0/0"},
		{"legacy", []rollout.Progress{proxy("web", last), proxy("back", last)}, "CircuitBreaker/legacy", "applied 1/1"},
		{"rejected", []rollout.Progress{proxy("web", last, rejects(5, 6, last, bad("web", api.BlameAlone)))},
			"MeshTimeout/web", "rejected 0/1 rejected web l"},
		{"rejected, while other types are not answered",
			[]rollout.Progress{proxy("web", 5, publishedAt(last), rejects(5, 6, last, bad("web", api.BlameChanged)))},
			"MeshTimeout/web",
			"rejected 0/1 rejected web l"},
		{"rejected for another policy",
			[]rollout.Progress{proxy("web", last, rejects(5, 6, last, bad("web", api.BlameAlone)))},
			"MeshTimeout/all", "applied 1/1"},
		{"rejected for something newer, which it shapes too",
			[]rollout.Progress{proxy("web", last, rejects(8, 9, last, bad("web", api.BlameShapes)))}, "MeshTimeout/web",
			"applied 1/1"},
		{"rejected from the start, and another one is the likely cause",
			[]rollout.Progress{proxy("web", last,
				rejects(0, 6, last, bad("all", api.BlameShapes), bad("web", api.BlameShapes)))},
			"MeshTimeout/web", "applied 1/1"},
		{"rejected from the start",
			[]rollout.Progress{proxy("web", last,
				rejects(0, 6, last, bad("all", api.BlameShapes), bad("web", api.BlameShapes)))},
			"MeshTimeout/all", "rejected 0/1 rejected web l"},
		{"rejected, and not known why", []rollout.Progress{proxy("web", last, rejects(5, 6, 0))}, "MeshTimeout/web",
			"pending 0/1 late web"},
		{"rejected, and not known why since the last change",
			[]rollout.Progress{proxy("web", last, rejects(5, 6, last-1, bad("old", api.BlameAlone)))}, "MeshTimeout/web",
			"pending 0/1 late web"},
		{"a dataplane is rejected", []rollout.Progress{proxy("web", last, rejects(2, 3, last))}, "Dataplane/web",
			"rejected 0/1 rejected web l"},
		{"a later change is rejected", []rollout.Progress{proxy("web", last, rejects(4, 5, last))}, "Dataplane/web",
			"applied 1/1"},
		{"it came after what is rejected", []rollout.Progress{proxy("web", last, rejects(1, 2, last))}, "Dataplane/web",
			"applied 1/1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			set.set(test.proxies...)
			typ, name, _ := strings.Cut(test.ask, "/")
			got := a.do("POST", "/v1/wait",
				fmt.Sprintf(`{"type": %q, "mesh": "default", "name": %q, "timeout": "0s"}`, typ, name))
			if got.status != http.StatusOK || standing(t, got.body) != test.want {
				t.Errorf("%d %s\nwant %s", got.status, got.body, test.want)
			}
			// The list says the same.
			d, _ := registry(t).Lookup(typ)
			got = a.do("GET", "/v1/applied/"+d.Plural+"?name="+name, "")
			var list api.AppliedList
			if err := json.Unmarshal([]byte(got.body), &list); err != nil || len(list.Items) != 1 || list.Total != 1 {
				t.Fatalf("%v %s", err, got.body)
			}
			one, _ := json.Marshal(list.Items[0])
			if s := standing(t, string(one)); s != test.want {
				t.Errorf("list: %s, want %s", s, test.want)
			}
		})
	}
	for _, reason := range []struct {
		proxy rollout.Progress
		want  string
	}{
		{proxy("web", 4, publishedAt(last)),
			"it has not acknowledged the response sent at 1970-01-01T00:00:00Z (cluster, listener)"},
		{proxy("web", 4), "its config is being computed"},
		{proxy("web", 4, func(p *rollout.Progress) { p.Revision = last }),
			"its config is being sent, or it has not requested all of it yet"},
	} {
		set.set(reason.proxy)
		if got := a.do("POST", "/v1/wait",
			`{"type": "mt", "mesh": "default", "name": "all", "timeout": "0s"}`); !strings.Contains(got.body, reason.want) {
			t.Errorf("%s\nlacks %s", got.body, reason.want)
		}
	}
	a.reconcile(api.Problem{Resource: "Dataplane/default/web", Severity: api.SeverityError,
		Reason: "it cannot be made"})
	set.set(proxy("web", 4))
	if got := a.do("POST", "/v1/wait",
		`{"type": "mt", "mesh": "default", "name": "all", "timeout": "0s"}`); !strings.Contains(got.body,
		"it cannot be made") {
		t.Errorf("%s", got.body)
	}
}

// TestAppliedToOthersNow checks that a policy is pending until every proxy that it no longer
// selects has dropped it; the same holds for a deleted policy.
func TestAppliedToOthersNow(t *testing.T) {
	a, set := startApplied(t)
	ask := func(what string) string {
		t.Helper()
		return standing(t, a.do("POST", "/v1/wait",
			fmt.Sprintf(`{"type": "mt", "mesh": "default", "name": "web", "for": %q, "timeout": "0s"}`, what)).body)
	}
	a.put(store.Source{Kind: store.SourceAPI}, "{type: MeshTimeout, mesh: default, name: web, "+
		"spec: {targetRef: {kind: MeshService, name: back}, to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 2s}}]}}")
	now := a.store.Snapshot().Revision()
	set.set(proxy("web", now-1), proxy("back", now))
	if got := ask("applied"); got != "pending 1/2 late web" {
		t.Errorf("before the pass: %s", got)
	}
	a.reconcile()
	if got := ask("applied"); got != "pending 1/2 late web" {
		t.Errorf("moved: %s", got)
	}
	set.set(proxy("web", now), proxy("back", now))
	if got := ask("applied"); got != "applied 1/1" {
		t.Errorf("moved and acknowledged: %s", got)
	}
	if got := ask("gone"); got != "pending 0/0" {
		t.Errorf("gone while it exists: %s", got)
	}
	if _, err := a.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
		Ops: []store.Op{{Delete: resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: "web"}}}}); err != nil {
		t.Fatal(err)
	}
	a.reconcile()
	if got := ask("gone"); got != "pending 0/2 late web late back" {
		t.Errorf("deleted: %s", got)
	}
	now++
	set.set(proxy("web", now), proxy("back", now))
	if got := ask("gone"); got != "gone 0/0" {
		t.Errorf("deleted and acknowledged: %s", got)
	}
	if got := a.do("POST", "/v1/wait",
		`{"type": "mt", "mesh": "default", "name": "web", "timeout": "0s"}`); got.status != http.StatusNotFound {
		t.Errorf("applied after it was deleted: %d %s", got.status, got.body)
	}
}

// TestWaitAnswersWhenItHappens: a question stays open until a proxy answers, also when the proxy
// went away meanwhile and comes back.
func TestWaitAnswersWhenItHappens(t *testing.T) {
	a, set := startApplied(t)
	question :=
		`{"type": "mt", "mesh": "default", "name": "all", "timeout": "20s", "late": ["default/back", "default/deleted"]}`
	answers := make(chan answer, 1)
	set.set(proxy("web", 4, publishedAt(10)))
	go func() { answers <- a.do("POST", "/v1/wait", question) }()
	set.set(proxy("web", 10)) // back is not there
	set.set(proxy("web", 10), proxy("back", 10))
	if got := <-answers; standing(t, got.body) != "applied 2/2" {
		t.Errorf("got %s", got.body)
	}
	set.set(proxy("web", 10))
	if got := a.do("POST", "/v1/wait", strings.Replace(question, "20s", "20ms", 1)); standing(t, got.body) != "pending "+
		"1/1 late back" || !strings.Contains(got.body, "has not reconnected yet") {
		t.Errorf("when the time is up: %s", got.body)
	}
	set.set(proxy("web", 10), proxy("back", 0, in(api.StateUnknown))) // it is, and its first config is being made
	if got := a.do("POST", "/v1/wait",
		strings.Replace(question, "20s", "20ms", 1)); standing(t, got.body) != "pending 1/1 late back" {
		t.Errorf("before it has a config: %s", got.body)
	}
}

// TestWaitEndsWithTheAgent: an open question does not hold up an agent that stops.
func TestWaitEndsWithTheAgent(t *testing.T) {
	looked := make(chan struct{}, 1)
	set := &proxySet{list: []rollout.Progress{proxy("web", 0)}}
	st, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &testAPI{t: t, store: st, base: "http://nearside"}
	a.put(store.Source{Kind: store.SourceAPI}, appliedMesh)
	a.reconcile()
	o := httpapi.Options{
		Options: write.Options{Registry: registry(t), Store: st, Last: a.last.Load, NewMesh: newMesh},
		Access:  httpapi.Access{Roles: rolesOf(t, access.RoleOptions{GID: -1})}, Watch: set.watch,
		Progress: func() []rollout.Progress {
			select {
			case looked <- struct{}{}:
			default:
			}
			return set.progress()
		}}
	if a.srv, err = httpapi.New(o); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stop := a.serve(l, "unix", path)
	answers := make(chan answer, 1)
	go func() { answers <- a.do("POST", "/v1/wait", `{"type": "mt", "mesh": "default", "name": "all"}`) }()
	<-looked
	stop()
	if got := <-answers; got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "shutting down") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestWaitQuestions has questions that cannot be answered.
func TestWaitQuestions(t *testing.T) {
	a, _ := startApplied(t)
	for body, want := range map[string]string{
		`{"type": "nothing", "mesh": "default", "name": "x"}`:                            `"field":"type"`,
		`{"type": "mt", "mesh": "default"}`:                                              `"field":"name"`,
		`{"type": "mt", "name": "x"}`:                                                    `"field":"mesh"`,
		`{"type": "mt", "mesh": "default", "name": "all", "for": "ever"}`:                `"field":"for"`,
		`{"type": "mt", "mesh": "default", "name": "all", "scope": "mesh"}`:              `this agent is not in a pool`,
		`{"type": "mt", "mesh": "default", "name": "all", "scope": "world"}`:             `"field":"scope"`,
		`{"type": "mt", "mesh": "default", "name": "all", "timeout": "1h"}`:              `a duration from 0s to 25s`,
		`{"type": "mt", "mesh": "default", "name": "all", "timeout": "-1s"}`:             `"field":"timeout"`,
		`{"type": "mt", "mesh": "default", "name": "all", "timeout": "soon"}`:            `"field":"timeout"`,
		`{"type": "mt", "mesh": "default", "name": "all", "wait": true}`:                 `unknown field`,
		`{"type": "mt", "mesh": "default", "name": "all", "late": [` + many(1001) + `]}`: `"field":"late"`,
	} {
		if got := a.do("POST", "/v1/wait", body); got.status != http.StatusBadRequest || !strings.Contains(got.body, want) {
			t.Errorf("%.80s: %d %s", body, got.status, got.body)
		}
	}
	for body, status := range map[string]int{
		`{"type": "mt", "mesh": "default", "name": "missing"}`:                                 http.StatusNotFound,
		`{"type": "mt", "mesh": "missing", "name": "all"}`:                                     http.StatusNotFound,
		`{"type": "mt", "mesh": "default", "name": "missing", "for": "gone", "timeout": "0s"}`: http.StatusOK,
		`{"type": "mesh", "name": "default", "mesh": "ignored", "timeout": "0s"}`:              http.StatusOK,
	} {
		if got := a.do("POST", "/v1/wait", body); got.status != status {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	if got := a.do("GET", "/v1/applied/nothings", ""); got.status != http.StatusNotFound {
		t.Errorf("a kind that does not exist: %d", got.status)
	}
}

func many(n int) string {
	return strings.TrimSuffix(strings.Repeat(`"a/b",`, n), ",")
}

// TestMeshIsAppliedOnceSwitched checks that a Mesh whose mutual TLS is being switched is pending,
// with the step, until the proxies have answered the last step. Its revision is the same in all
// steps.
func TestMeshIsAppliedOnceSwitched(t *testing.T) {
	a, set := startApplied(t)
	const last = 10 // revision
	ask := func(typ, name string) string {
		t.Helper()
		return a.do("POST", "/v1/wait",
			fmt.Sprintf(`{"type": %q, "mesh": "default", "name": %q, "timeout": "0s"}`, typ, name)).body
	}
	set.set(proxy("web", last))
	l := *a.last.Load()
	key := resource.Key{Kind: "Mesh", Name: "default"}
	l.Switching = map[resource.Key]string{key: "proxies use it, and inbounds take plain text too"}
	a.last.Store(&l)
	if got := ask("Mesh", "default"); standing(t, got) != "pending 1/1" || !strings.Contains(got, l.Switching[key]) {
		t.Errorf("in a step: %s", got)
	}
	if got := standing(t, ask("MeshTimeout", "all")); got != "applied 1/1" {
		t.Errorf("a policy in a step: %s", got)
	}
	a.reconcile()
	set.set(proxy("web", last, publishedAt(last)))
	if got := standing(t, ask("Mesh", "default")); got != "pending 0/1 late web" {
		t.Errorf("the last step, not answered: %s", got)
	}
	set.set(proxy("web", last))
	if got := standing(t, ask("Mesh", "default")); got != "applied 1/1" {
		t.Errorf("the last step: %s", got)
	}
}
