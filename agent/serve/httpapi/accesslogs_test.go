package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/deliver/account"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// startLogs is an API over TCP with the streams of two proxies and of the file that they share.
func startLogs(t *testing.T, flushed *[]string) *testAPI {
	a := startTCP(t, func(o *httpapi.Options) {
		o.Access = httpapi.Access{Roles: rolesOf(t, access.RoleOptions{Roles: testRoles, GID: -1}), Verify: subjects}
		o.AuditFile = "/var/log/nearside/audit/audit.log"
		fifo := func(name string, in uint64) api.LogStream {
			return api.LogStream{Kind: api.LogFIFO, Name: "/run/" + name + ".fifo", Mesh: "default", Dataplane: name,
				Destination: "file /logs/all.log",
				Holder:      "nearside hold", In: in, Written: in, Dropped: map[string]uint64{}}
		}
		o.Logs = account.New(account.Options{Streams: func() []api.LogStream {
			return []api.LogStream{fifo("pay", 40), fifo("web", 60),
				{Kind: api.LogFile, Name: "/logs/all.log", Destination: "file /logs/all.log",
					In: 100, Written: 90, InFlight: 3, Spooled: 2, Dropped: map[string]uint64{"disk-full": 5}},
				{Kind: api.LogReceiver, Name: "tcp", Destination: "file /logs/tcp.log", In: 7, Written: 7},
				{Kind: api.LogFile, Name: "/logs/tcp.log", Destination: "file /logs/tcp.log", In: 7, Written: 7}}
		}})
		o.FlushLogs = func(_ context.Context, mesh, name string) (bool, error) {
			*flushed = append(*flushed, mesh+"/"+name)
			if name == "web2" {
				return true, errors.New("it hangs")
			}
			return name != "nope", nil
		}
	})
	a.put(store.Source{Kind: store.SourceAPI}, testMeshes)
	a.reconcile()
	return a
}

// TestAccessLogs checks which users see which streams. Users without read access to everything do
// not see the destinations of other FIFOs.
func TestAccessLogs(t *testing.T) {
	var flushed []string
	a := startLogs(t, &flushed)
	for _, c := range []struct {
		who    string
		status int
		want   string // names
		audit  bool
	}{
		{"viewer", 200, "/run/pay.fifo /run/web.fifo /logs/all.log tcp /logs/tcp.log", true},
		{"team", 200, "/run/web.fifo", false},
		{"other", 200, "", false},
		{"maker", 403, "", false},
	} {
		r := a.do(http.MethodGet, "/v1/accesslogs", "", as(c.who))
		a.want(r, c.status)
		if c.status != 200 {
			continue
		}
		var got api.AccessLogs
		if err := json.Unmarshal([]byte(r.body), &got); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range got.Items {
			names = append(names, s.Name)
		}
		if text := strings.Join(names, " "); text != c.want || got.Total != len(names) || got.AuditFile != "" != c.audit {
			t.Errorf("%s sees %q, total %d, audit log %q", c.who, text, got.Total, got.AuditFile)
		}
	}
	a.want(a.do(http.MethodGet, "/v1/status", "", as("viewer")), 200,
		`"accessLogLines":{"streams":5,"read":107,"written":97,"spooled":2,"inFlight":3,"dropped":{"disk-full":5}}`)
	a.want(a.do(http.MethodGet, "/v1/status", "", as("team")), 200, `"accessLogLines":{"streams":1,"read":60,"written":0,`)
	if r := a.do(http.MethodGet, "/v1/status", "", as("other")); strings.Contains(r.body, "accessLogLines") {
		t.Errorf("somebody who sees no stream sees counts: %s", r.body)
	}
}

// TestLogs checks that only a grant of read-logs opens log files, and for which objects.
func TestLogs(t *testing.T) {
	roles := append(slices.Clone(testRoles), access.Role{Name: "reader", Subjects: []access.Matcher{{Token: "reader"}},
		Allow: []access.Allow{{Kinds: []string{"Dataplane"}, Meshes: []string{"default"}, Names: []string{"web*"},
			Verbs: []string{access.VerbReadLogs}}}})
	a := startTCP(t, func(o *httpapi.Options) {
		o.Access = httpapi.Access{Roles: rolesOf(t, access.RoleOptions{Roles: roles, GID: -1}), Verify: subjects}
		o.ReadLogs = func(w http.ResponseWriter, _ *http.Request, may func(string, resource.Key) bool) *api.Error {
			for _, k := range []resource.Key{{Kind: "Dataplane", Mesh: "default", Name: "web2"},
				{Kind: "Dataplane", Mesh: "default", Name: "pay"}, {Kind: "Dataplane", Mesh: "other", Name: "web"},
				{Kind: access.KindAgent}} {
				fmt.Fprint(w, may(access.VerbReadLogs, k), " ")
			}
			return nil
		}
	})
	for _, c := range []struct {
		who    string
		status int
		want   string
	}{
		{"ops", 200, "true true true true "}, {"reader", 200, "true false false false "}, {"viewer", 403, "read-logs"},
		{"team", 200, "false false false false "}, {"other", 200, "false false true false "},
		{"maker", 403, "permission-denied"},
	} {
		r := a.do(http.MethodGet, "/v1/logs", "", as(c.who))
		switch {
		case c.status != 200:
			a.want(r, c.status, c.want)
		case r.status != 200 || r.body != c.want:
			t.Errorf("%s: status %d, may read %s", c.who, r.status, r.body)
		}
	}
	plain := startTCP(t, func(o *httpapi.Options) {
		o.Access = httpapi.Access{Roles: rolesOf(t, access.RoleOptions{GID: -1}), Verify: subjects}
	})
	plain.want(plain.do(http.MethodGet, "/v1/logs", "", as("viewer")), 403, "permission-denied")
	plain.want(plain.do(http.MethodGet, "/v1/status", "", as("viewer")), 200)
}

// TestFlushLogs is who may have an Envoy write its logs.
func TestFlushLogs(t *testing.T) {
	var flushed []string
	a := startLogs(t, &flushed)
	for _, c := range []struct {
		who, query string
		status     int
		part       string
	}{
		{"team", "mesh=default&dataplane=web", 204, ""},
		{"viewer", "mesh=default&dataplane=pay", 204, ""},
		{"team", "mesh=default&dataplane=pay", 403, "permission-denied"},
		{"maker", "mesh=default&dataplane=web", 403, "permission-denied"},
		{"viewer", "mesh=default&dataplane=nope", 404, "logs through this agent"},
		{"team", "mesh=default&dataplane=web2", 503, "it hangs"},
		{"viewer", "mesh=default", 400, `"field":"dataplane"`},
		{"viewer", "dataplane=web", 400, `"field":"mesh"`},
	} {
		a.want(a.do(http.MethodPost, "/v1/accesslogs/flush?"+c.query, "", as(c.who)), c.status, c.part)
	}
	if got := strings.Join(flushed, " "); got != "default/web default/pay default/nope default/web2" {
		t.Errorf("flushed: %s", got)
	}
}
