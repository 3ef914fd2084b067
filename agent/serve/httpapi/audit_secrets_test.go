package httpapi_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

// TestAuditHasNoSecrets: with the profile that logs most, no event has a part of a key or of a
// token, wherever they were sent.
func TestAuditHasNoSecrets(t *testing.T) {
	var leaks secrettest.Leaks
	cert, key := secrettest.Authority(t, "one")
	leaks.Key(t, "key", key)
	const token = "eyJhbGciOiJFUzI1NiIsImtpZCI6IjEyMyJ9.eyJzdWIiOiJhbGljZSIsImp0aSI6ImFiYzEyMyJ9." +
		"c2lnbmF0dXJlMTIzNDU2Nzg5MHNpZ25hdHVyZQ"
	leaks.Text("token", token)
	leaks.Text("password", "hunter2-of-the-query")
	x := &auditor{profile: audit.ProfileAllRequests}
	a := start(t, func(o *httpapi.Options) { o.Audit = x })
	quoted, _ := json.Marshal(string(key))
	labelled := strings.Replace(auditedTimeout, `"spec"`, `"labels":{"a":`+string(quoted)+`},"spec"`, 1)
	n := 0
	for _, q := range []struct{ method, path, body, header string }{
		{"PUT", "/meshes/default", providedMesh(cert, key, ""), ""},
		{"PUT", "/meshes/default?dryRun=true", providedMesh(cert, key, ""), ""},
		{"PUT", "/meshes/default", providedMesh(cert, key, `"nothing":1,`), ""},
		{"POST", "/v1/apply", providedMesh(cert, key, "") + "\n---\n" + auditedTimeout, ""},
		{"POST", "/v1/diff", providedMesh(cert, key, ""), ""},
		{"PUT", "/meshes/default/meshtimeouts/slow", labelled, ""},
		{"PUT", "/meshes/default/meshtimeouts/slow", string(key), ""},
		{"GET", "/meshes", "", ""},
		{"GET", "/meshes/default", "", ""},
		{"GET", "/v1/history/meshes/default", "", ""},
		{"GET", "/meshes/default/meshtimeouts", "", "User-Agent: " + token},
		{"GET", "/tokens/" + token, "", ""},
		{"GET", "/meshes/" + token, "", ""},
		{"GET", "/meshes?token=" + token, "", ""},
		{"GET", "/meshes?pass%77ord=hunter2-of-the-query", "", ""},
		{"GET", "/meshes", "", "Authorization: Bearer " + token},
	} {
		n++
		var headers []string
		if q.header != "" {
			headers = append(headers, q.header)
		}
		a.do(q.method, q.path, q.body, headers...)
		x.await(t, n)
	}
	if at := leaks.In([]byte(x.text())); at != "" {
		t.Errorf("an event shows a secret: %s", at)
	}
}

// TestAuditRefusesWrites: while the log takes no events, nothing is stored, and reads and dry runs
// are answered.
func TestAuditRefusesWrites(t *testing.T) {
	x := &auditor{profile: audit.ProfileDefault, refuse: errors.New("the disk is full")}
	a := start(t, func(o *httpapi.Options) { o.Audit = x })
	a.want(a.do("PUT", "/meshes/default?dryRun=true", meshDoc), 201)
	a.want(a.do("PUT", "/meshes/default", meshDoc), 503, "/problems/audit-log", "the disk is full")
	a.want(a.do("POST", "/v1/apply", meshDoc), 503, "/problems/audit-log")
	a.want(a.do("GET", "/meshes", ""), 200, `"total":0`)
	x.mu.Lock()
	x.refuse = nil
	x.mu.Unlock()
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
	if x.stored != 1 {
		t.Errorf("%d events of changes, want 1", x.stored)
	}
}
