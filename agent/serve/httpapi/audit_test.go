package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// auditor is an audit log in memory.
type auditor struct {
	profile audit.Profile

	mu         sync.Mutex
	refuse     error // guarded by mu, as all below
	lines      bytes.Buffer
	stored     int
	suppressed int
}

func (x *auditor) Profile() audit.Profile { return x.profile }
func (x *auditor) Suppressed()            { x.mu.Lock(); defer x.mu.Unlock(); x.suppressed++ }

func (x *auditor) Ready() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.refuse
}

func (x *auditor) Record(e *audit.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lines.Write(e.Append(nil))
}

func (x *auditor) Store(e *audit.Event) error {
	x.Record(e)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stored++
	return nil
}

func (x *auditor) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lines.String()
}

// logged is an event as readers decode it.
type logged struct {
	Kind, APIVersion, Level, AuditID, Stage, RequestURI, Verb, UserAgent string
	User                                                                 struct {
		Username, UID string
		Groups        []string
		Extra         map[string][]string
	}
	ObjectRef *struct{ Resource, Namespace, Name, Subresource string }

	ResponseStatus struct {
		Code                    int
		Status, Message, Reason string
	}
	RequestObject, ResponseObject json.RawMessage
	Annotations                   map[string]string
	SourceIPs                     []string
}

// await returns the events once there are n: that of a read is made when its answer may have been
// read.
func (x *auditor) await(t testing.TB, n int) (out []logged) {
	t.Helper()
	for late := time.After(time.Minute); ; {
		text := x.text()
		if strings.Count(text, "\n") >= n {
			for line := range strings.Lines(text) {
				var e logged
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("%v: %s", err, line)
				}
				out = append(out, e)
			}
			if len(out) != n {
				t.Fatalf("%d events, want %d:\n%s", len(out), n, text)
			}
			return out
		}
		select {
		case <-late:
			t.Fatalf("want %d events, have:\n%s", n, text)
		case <-time.After(time.Millisecond):
		}
	}
}

func (e logged) short() string {
	out := e.Level + " " + e.Stage + " " + e.Verb
	if o := e.ObjectRef; o != nil {
		out += " " + strings.Join([]string{o.Resource, o.Namespace, o.Name, o.Subresource}, "/")
	}
	out += fmt.Sprint(" ", e.ResponseStatus.Code)
	if e.ResponseStatus.Reason != "" {
		out += " " + e.ResponseStatus.Reason
	}
	if len(e.RequestObject) > 0 {
		out += " +request"
	}
	if len(e.ResponseObject) > 0 {
		out += " +response"
	}
	for _, k := range []string{
		"authorization.k8s.io/decision", "nearside.io/dry-run", "nearside.io/resources", "nearside.io/changes",
	} {
		if v := e.Annotations[k]; v != "" {
			out += " " + v
		}
	}
	return out
}

const auditedTimeout = `{"type":"MeshTimeout","mesh":"default","name":"slow","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"20s"}}]}}`

// TestAuditEvents makes requests of every sort and compares their events: levels by profile, verbs,
// objects and outcomes.
func TestAuditEvents(t *testing.T) {
	other := strings.Replace(auditedTimeout, `"slow"`, `"fast"`, 1)
	cases := []struct {
		method, path, body string
		def, write, all    string // the event with each profile; "": as with the one before, "-": none
	}{
		{"GET", "/livez", "", "-", "", ""},
		{"GET", "/readyz?verbose", "", "-", "", ""},
		{"GET", "/metrics", "", "-", "", ""},
		{"DELETE", "/livez", "", "Metadata ResponseComplete delete 405 method-not-allowed", "", ""},
		{"GET", "/", "", "Metadata ResponseComplete get 200 allow", "", ""},
		{"GET", "/v1/status", "", "Metadata ResponseComplete get 200 allow", "", ""},
		{"PUT", "/meshes/default", meshDoc,
			"Metadata ResponseComplete create meshes//default/ 201 allow created Mesh/default@1", "", ""},
		{"PUT", "/meshes/default/meshtimeouts/slow?dryRun=true",
			auditedTimeout, "Metadata ResponseComplete create meshtimeouts/default/slow/ 201 allow true",
			"RequestResponse ResponseComplete create meshtimeouts/default/slow/ 201 +request +response allow true", ""},
		{"PUT", "/meshes/default/meshtimeouts/slow", auditedTimeout,
			"Metadata ResponseComplete create meshtimeouts/default/slow/ 201 allow created MeshTimeout/default/slow@2",
			"RequestResponse ResponseComplete create meshtimeouts/default/slow/ 201 +request +response allow created " +
				"MeshTimeout/default/slow@2", ""},
		{"PUT", "/meshes/default/meshtimeouts/slow", strings.Replace(auditedTimeout, "20s", "30s", 1),
			"Metadata ResponseComplete update meshtimeouts/default/slow/ 200 allow changed MeshTimeout/default/slow@3",
			"RequestResponse ResponseComplete update meshtimeouts/default/slow/ 200 +request +response allow changed " +
				"MeshTimeout/default/slow@3", ""},
		{"PUT", "/meshes/default/meshtimeouts/slow",
			"{bad", "Metadata ResponseComplete update meshtimeouts/default/slow/ 400 invalid-resource allow", "", ""},
		{"GET", "/meshes/default/meshtimeouts/slow", "", "Metadata ResponseComplete get meshtimeouts/default/slow/ 200 allow",
			"", "RequestResponse ResponseComplete get meshtimeouts/default/slow/ 200 +response allow"},
		{"GET", "/meshes/default/meshtimeouts", "", "Metadata ResponseComplete list meshtimeouts/default// 200 allow", "",
			"RequestResponse ResponseComplete list meshtimeouts/default// 200 +response allow"},
		{"GET", "/v1/history/meshtimeouts/default/slow",
			"", "Metadata ResponseComplete get meshtimeouts/default/slow/history 200 allow", "",
			"RequestResponse ResponseComplete get meshtimeouts/default/slow/history 200 +response allow"},
		{"GET", "/meshes/default", "", "Metadata ResponseComplete get meshes//default/ 200 allow", "", ""},
		{"GET", "/meshes/default/dataplanes/none/_config",
			"", "Metadata ResponseComplete get dataplanes/default/none/config 503 not-ready allow", "", ""},
		{"POST", "/v1/apply", auditedTimeout + "\n---\n" + other,
			"Metadata ResponseComplete patch 200 allow MeshTimeout/default/slow, " +
				"MeshTimeout/default/fast changed MeshTimeout/default/slow@4, created MeshTimeout/default/fast@5",
			"RequestResponse ResponseComplete patch 200 +request +response allow MeshTimeout/default/slow, " +
				"MeshTimeout/default/fast changed MeshTimeout/default/slow@4, created MeshTimeout/default/fast@5", ""},
		{"POST", "/v1/rollback", `{"type":"MeshTimeout","mesh":"default","name":"slow","revision":3}`,
			"Metadata ResponseComplete update meshtimeouts/default/slow/ 200 allow changed MeshTimeout/default/slow@6",
			"RequestResponse ResponseComplete update meshtimeouts/default/slow/ 200 +request +response allow changed " +
				"MeshTimeout/default/slow@6", ""},
		{"DELETE", "/meshes/default/meshtimeouts/slow",
			"", "Metadata ResponseComplete delete meshtimeouts/default/slow/ 200 allow deleted MeshTimeout/default/slow@7",
			"RequestResponse ResponseComplete delete meshtimeouts/default/slow/ 200 +response allow deleted " +
				"MeshTimeout/default/slow@7", ""},
		{"GET", "/nothing/at/all/of/it", "", "Metadata ResponseComplete get 404 not-found", "", ""},
		{"GET", "/meshes/../x", "", "Metadata ResponseComplete get 404 not-found", "", ""},
	}
	for i, profile := range []audit.Profile{audit.ProfileDefault, audit.ProfileWriteRequests, audit.ProfileAllRequests} {
		x := &auditor{profile: profile}
		a := start(t, func(o *httpapi.Options) { o.Audit = x })
		n := 0
		for _, tc := range cases {
			got := a.do(tc.method, tc.path, tc.body)
			if id := got.header.Get("Audit-Id"); len(id) != 36 {
				t.Errorf("%s: Audit-Id %q", got.request, id)
			}
			want := tc.def
			for _, w := range []string{tc.def, tc.write, tc.all}[:i+1] {
				if w != "" {
					want = w
				}
			}
			if want == "-" {
				continue
			}
			n++
			e := x.await(t, n)[n-1]
			if s := e.short(); s != want {
				t.Errorf("%s, %s:\n got %s\nwant %s", profile, got.request, s, want)
			}
			if e.AuditID != got.header.Get("Audit-Id") || e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" ||
				e.User.UID != fmt.Sprint(os.Getuid()) || e.RequestURI != tc.path {
				t.Errorf("%s: %+v", got.request, e)
			}
		}
	}
}
