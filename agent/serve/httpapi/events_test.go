package httpapi_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/events"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// withEvents connects a store and a hub.
func withEvents(t *testing.T) (*events.Hub, func(*httpapi.Options)) {
	hub := &events.Hub{}
	s, err := store.Open(store.Options{Changed: hub.Changed})
	if err != nil {
		t.Fatal(err)
	}
	return hub, func(o *httpapi.Options) { o.Store, o.Events = s, hub }
}

func recorded(kind, mesh, name string) rollout.Recorded {
	return rollout.Recorded{Ref: node.Ref{Type: node.ProxyDataplane, Mesh: mesh, Name: name},
		Event: api.Event{Kind: kind, Time: time.Unix(9, 0).UTC(), TypeURL: "type.googleapis.com/x.Cluster", Version: "v1",
			Reason: "bad", Resources: []string{"b", "c"}}}
}

// TestEvents reads events of all kinds over a real socket.
func TestEvents(t *testing.T) {
	hub, option := withEvents(t)
	a := start(t, option)
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc)
	r := a.events(t, "", "")
	defer r.close()
	r.want("hello", `"instance":"i1"`, `"revision":1}`)

	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout("5s")), 201)
	r.want("change", `"type":"MeshTimeout","mesh":"default","name":"t1","action":"created","revision":2,"source":"api"`,
		`"author":"uid=`)
	a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout("6s")), 200)
	r.want("change", `"action":"changed","revision":3`)
	a.want(a.do("DELETE", "/meshes/default/meshtimeouts/t1", ""), 200)
	r.want("change", `"action":"deleted","revision":4`)
	a.put(store.Source{Kind: store.SourceFile, Detail: "/x.yaml"}, web)
	r.want("change", `"type":"Dataplane"`, `"source":"file:/x.yaml"`)

	for _, kind := range []string{"connected", "held", "sent", "ack", "nack", "disconnected"} {
		hub.Recorded(recorded(kind, "default", "web"))
	}
	const proxy = `{"kind":"Dataplane","mesh":"default","name":"web","time":"1970-01-01T00:00:09Z",`
	r.want("proxy", proxy+`"state":"connected"}`)
	r.want("ack", proxy+`"xdsType":"type.googleapis.com/x.Cluster","version":"v1"}`)
	r.want("nack", proxy+`"xdsType":"type.googleapis.com/x.Cluster","version":"v1","error":"bad","resource":"b",`+
		`"resources":["b","c"],"policies":[]}`)
	r.want("proxy", proxy+`"state":"disconnected"}`)
}

// TestEventFilters reads the events of one type and of one mesh.
func TestEventFilters(t *testing.T) {
	hub, option := withEvents(t)
	a := start(t, option)
	types, mesh := a.events(t, "?types=ack,proxy", ""), a.events(t, "?mesh=two", "")
	defer types.close()
	defer mesh.close()
	types.want("hello")
	mesh.want("hello")
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n{type: Mesh, name: two}")
	hub.Recorded(recorded("ack", "default", "web"))
	hub.Recorded(recorded("nack", "two", "web"))
	types.want("ack", `"mesh":"default"`)
	mesh.want("change", `"type":"Mesh","name":"two"`)
	mesh.want("nack", `"mesh":"two"`)
	a.want(a.do("GET", "/v1/events?types=change,x", ""), 400, `x\" is invalid; use one of change, proxy, ack, nack, problem`)
	a.want(a.do("GET", "/v1/events?mesh=a&mesh=b", ""), 400, "give it once")
	if got := a.do("HEAD", "/v1/events", ""); got.status != 200 || got.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %d %v", got.status, got.header)
	}
}

// verified accepts the token "good" until a time, and only while it is not revoked.
type verified struct {
	expires time.Time
	revoked atomic.Bool
}

func (v *verified) verify(text string) (token.Claims, error) {
	switch {
	case text != "good":
		return token.Claims{}, errors.New("the token is wrong")
	case v.revoked.Load():
		return token.Claims{}, errors.New("the token is revoked")
	}
	return token.Claims{Subject: "ann", Expires: v.expires}, nil
}

// TestEventStreamLasts: a stream outlives the timeouts of requests, with signs of life, and ends
// when the agent stops.
func TestEventStreamLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, option := withEvents(t)
		a, stop := serveInMemory(t, option, func(o *httpapi.Options) { o.Access.Verify = new(verified).verify })
		r := a.events(t, "?types=ack", "good")
		r.want("hello")
		for range 40 { // 10 minutes, the timeouts are 30 and 60 seconds
			if d := r.alive(); d != 15*time.Second {
				t.Errorf("a sign of life after %s", d)
			}
		}
		hub.Recorded(recorded("ack", "default", "web"))
		r.want("ack")
		done := make(chan struct{})
		go func() { stop(); close(done) }()
		r.want("end", "shutting down")
		r.ended()
		r.close()
		<-done
	})
}

// TestEventsEndWithToken: the stream ends at once when its token expires, and within 15 seconds
// when it is revoked.
func TestEventsEndWithToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, option := withEvents(t)
		v := &verified{expires: time.Now().Add(100 * time.Second)}
		a, stop := serveInMemory(t, option, func(o *httpapi.Options) { o.Access.Verify = v.verify })
		began := time.Now()
		r := a.events(t, "?types=ack", "good")
		r.want("hello")
		r.want("end", "the token has expired")
		r.ended()
		if d := time.Since(began); d != 100*time.Second {
			t.Errorf("ended after %s", d)
		}
		v.expires = time.Time{}
		r = a.events(t, "?types=ack", "good")
		r.want("hello")
		v.revoked.Store(true)
		r.want("end", "the token is revoked")
		r.ended()
		hub.Recorded(recorded("ack", "default", "web")) // for nobody
		stop()
	})
}

// withRole gives the token "good" a role.
func withRole(t *testing.T, allow ...access.Allow) func(*httpapi.Options) {
	return func(o *httpapi.Options) {
		o.Access.Verify = new(verified).verify
		o.Access.Roles = rolesOf(t, access.RoleOptions{Roles: []access.Role{{Name: "r",
			Subjects: []access.Matcher{{Token: "ann"}}, Allow: allow},
			{Name: "all", Template: access.TemplateViewer, Subjects: []access.Matcher{{Token: access.StaticSubject}}}}})
	}
}

// TestEventPermissions: a sender gets only what its roles let it list or inspect.
func TestEventPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, option := withEvents(t)
		a, stop := serveInMemory(t, option, withRole(t,
			access.Allow{Kinds: []string{"MeshTimeout"}, Meshes: []string{"one"}, Verbs: []string{"list"}},
			access.Allow{Kinds: []string{"Dataplane"}, Meshes: []string{"two"}, Verbs: []string{"inspect"}}))
		r := a.events(t, "?types=change,ack", "good")
		r.want("hello")
		a.put(store.Source{Kind: store.SourceAPI}, "{type: Mesh, name: one}\n---\n{type: Mesh, name: two}\n---\n"+
			strings.Replace(timeout("5s"), `"default"`, `"two"`, 1)+"\n---\n"+strings.Replace(timeout("5s"), `"default"`, `"one"`, 1))
		r.want("change", `"type":"MeshTimeout","mesh":"one"`)
		hub.Recorded(recorded("ack", "one", "web"))
		hub.Recorded(recorded("ack", "two", "web"))
		r.want("ack", `"mesh":"two"`)
		r.close()
		stop()
	})
}

// TestProblemEvents: problems of the status that are new or have ended are events for those who may
// see them, soon after a change, and otherwise within 15 seconds.
func TestProblemEvents(t *testing.T) {
	problem := func(k, reason string) api.Problem {
		return api.Problem{Resource: k, Severity: api.SeverityWarning, Reason: reason}
	}
	one, two := problem("MeshTimeout/one/t", "first"), problem("MeshTimeout/two/t", "second")
	file := api.Problem{Severity: api.SeverityError, Check: api.ClassFileFault, Reason: "third"}
	synctest.Test(t, func(t *testing.T) {
		_, option := withEvents(t)
		a, stop := serveInMemory(t, option, withRole(t,
			access.Allow{Kinds: []string{"MeshTimeout"}, Meshes: []string{"one"}, Verbs: []string{"inspect"}}),
			func(o *httpapi.Options) { o.Access.Token = "all" })
		a.reconcile(one)
		all, some := a.events(t, "?types=problem", "all"), a.events(t, "?types=problem", "good")
		all.want("hello")
		some.want("hello")
		began := time.Now()
		a.reconcile(two, file)
		all.want("problem", `{"state":"ended","problem":{"resource":"MeshTimeout/one/t"`)
		if d := time.Since(began); d > 16*time.Second {
			t.Errorf("at rest, a problem is an event after %s", d)
		}
		all.want("problem", `{"state":"new","problem":{"resource":""`, "third")
		all.want("problem", `{"state":"new","problem":{"resource":"MeshTimeout/two/t"`)
		some.want("problem", `"state":"ended"`, "first")

		time.Sleep(5 * time.Second) // fake
		began = time.Now()
		a.reconcile(one)
		a.put(store.Source{Kind: store.SourceAPI}, meshDoc)
		all.want("problem", `"ended"`)
		all.want("problem", `"ended"`)
		all.want("problem", `"new"`, "first")
		some.want("problem", `"new"`, "first")
		if d := time.Since(began); d > 300*time.Millisecond {
			t.Errorf("after a change, a problem is an event after %s", d)
		}
		all.close()
		some.close()
		stop()
	})
}

// TestEventShares: one sender can have a number of streams, and others are not affected.
func TestEventShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, option := withEvents(t)
		a, stop := serveInMemory(t, option, func(o *httpapi.Options) {
			o.Access.Verify = new(verified).verify
			o.Limits.Events = 2
		})
		one, two := a.events(t, "?types=ack", "good"), a.events(t, "?types=ack", "good")
		got := a.do("GET", "/v1/events", "", "Authorization: Bearer good")
		a.want(got, 429, "has 2 such requests in progress")
		one.close()
		synctest.Wait()
		three := a.events(t, "?types=ack", "good")
		three.want("hello")
		two.close()
		three.close()
		stop()
	})
}

// TestSlowReader: a reader that is too slow does not hold anybody up. It gets lost, and then goes
// on.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, option := withEvents(t)
		a, stop := serveInMemory(t, option, func(o *httpapi.Options) { o.Access.Verify = new(verified).verify })
		r := a.events(t, "?types=ack", "good")
		r.want("hello")
		hub.Recorded(recorded("ack", "default", "first"))
		synctest.Wait() // it is being written, but not read
		for range 5000 {
			hub.Recorded(recorded("ack", "default", "web"))
		}
		hub.Recorded(recorded("ack", "default", "last"))
		r.want("ack", "first")
		r.want("lost", `{"events":905}`)
		for i := 0; ; i++ {
			if got := r.next(); strings.Contains(got, `"last"`) {
				if i != 4095 {
					t.Errorf("%d events after lost", i)
				}
				break
			}
		}
		r.close()
		stop()
	})
}
