package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

// auditEvent is an event as readers of the audit log decode it.
type auditEvent struct {
	Level, AuditID, Verb, RequestURI string
	User                             struct{ Username, UID string }
	ObjectRef                        struct{ Resource, Namespace, Name, ResourceVersion string }
	ResponseStatus                   struct{ Code int }
	RequestObject, ResponseObject    json.RawMessage
	Annotations                      map[string]string
}

func (e *auditEvent) String() string {
	out := fmt.Sprintf("%s %s %s/%s/%s %d %s", e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace,
		e.ObjectRef.Name, e.ResponseStatus.Code, e.Level)
	if len(e.ResponseObject) > 0 {
		out += " +bodies"
	}
	return out
}

// auditFiles returns the files of the audit log, oldest first.
func auditFiles(t *testing.T, dir string) []string {
	t.Helper()
	backups, err := filepath.Glob(filepath.Join(dir, "logs", "audit", "audit-*.log"))
	agenttest.Do(t, err)
	return append(backups, filepath.Join(dir, "logs", "audit", "audit.log"))
}

// audited waits until the audit log has n events and returns them. Events of reads are written
// asynchronously.
func audited(t *testing.T, dir string, n int) (out []auditEvent) {
	t.Helper()
	agenttest.Eventually(t, fmt.Sprintf("%d events", n), func() bool {
		var text []byte
		for _, path := range auditFiles(t, dir) {
			some, _ := os.ReadFile(path)
			text = append(text, some...)
		}
		if bytes.Count(text, []byte("\n")) < n { // counting lines is much cheaper than decoding them
			return false
		}
		out = nil
		for line := range bytes.Lines(text) {
			var e auditEvent
			if err := json.Unmarshal(line, &e); err != nil {
				return false // a partly written line
			}
			out = append(out, e)
		}
		return len(out) >= n
	})
	if len(out) != n {
		t.Fatalf("%d events, want %d: %v", len(out), n, out)
	}
	return out
}

// withFile runs an agent with a config file. It returns a function that replaces the file and waits
// for log messages.
func withFile(t *testing.T, dir, text string, set ...string) (*agenttest.Running, func(text string, says ...string)) {
	t.Helper()
	file := filepath.Join(dir, "agent.yaml")
	agenttest.Write(t, file, text)
	hup := make(chan os.Signal)
	o := agenttest.Options(dir, set...)
	o.File = file
	// After the first signal, the file contains the settings given by --set.
	r := agenttest.Up(t, dir, agent.Deps{Hangup: hup, Reload: o}, set...)
	reload := func(text string, says ...string) {
		t.Helper()
		agenttest.Write(t, file, text)
		hup <- syscall.SIGHUP
		agenttest.Await(t, fmt.Sprintf("the log says %q", says), r.Logs.Ch, func() bool {
			return !slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(r.Logs.String(), s) })
		})
	}
	return r, reload
}

const auditedPolicy = `{"type":"MeshTimeout","mesh":"default","name":"%s","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"20s"}}]}}`

// TestAuditOfUsers checks the audit log of three users over the socket under each profile, which
// SIGHUP changes. The file must contain users, actions, and level, but no keys or tokens. It must
// be readable for everyone who may read the API.
func TestAuditOfUsers(t *testing.T) {
	person := agenttest.People(t)
	root, mate, other := person(0), person(member, sockets), person(stranger)
	dir := openDir(t)
	r, reload := withFile(t, dir, "{}\n", "api.socket.group=61000", "api.socket.mode=0666", "xds.socket.group=")
	var leaks secrettest.Leaks
	cert, key := secrettest.Authority(t, "own")
	leaks.Key(t, "key", key)
	const token = "eyJhbGciOiJFUzI1NiIsImtpZCI6IjEyMyJ9.eyJzdWIiOiJhbGljZSIsImp0aSI6ImFiYzEyMyJ9." +
		"c2lnbmF0dXJlMTIzNDU2Nzg5MHNpZ25hdHVyZQ"
	leaks.Text("token", token)
	c, _ := json.Marshal(string(cert))
	k, _ := json.Marshal(string(key))
	mesh := fmt.Sprintf(`{"type":"Mesh","name":"default","mtls":{"enabledBackend":"own","backends":[{"name":"own","type":"provided","conf":{"cert":{"inlineString":%s},"key":{"inlineString":%s}}}]}}`, c, k)
	act := func(method, path, body string) agenttest.Act {
		return agenttest.Act{Do: "api", Socket: r.Addrs().API, Method: method, Path: path, Body: body}
	}
	policy := func(name string) string { return "/meshes/default/meshtimeouts/" + name }
	n, id := 0, 0
	for _, profile := range []struct{ name, write, read string }{
		{"Default", "Metadata", "Metadata"},
		{"WriteRequestBodies", "RequestResponse +bodies", "Metadata"},
		{"AllRequestBodies", "RequestResponse +bodies", "RequestResponse +bodies"},
	} {
		if profile.name != "Default" {
			reload("auditLog: {profile: "+profile.name+"}\n", "key=auditLog.profile", "to="+profile.name)
			if n++; audited(t, dir, n)[n-1].Annotations["nearside.io/config"] == "" {
				t.Errorf("the switch to %s has no event", profile.name)
			}
		}
		id++
		name := fmt.Sprintf("t%d", id)
		was := "update meshes//default 200"
		if id == 1 {
			was = "create meshes//default 201"
		}
		mesh := strings.Replace(mesh, `"name":"default"`, fmt.Sprintf(`"name":"default","labels":{"round":"%d"}`, id), 1)
		for _, step := range []struct {
			who  *agenttest.Person
			act  agenttest.Act
			want string // expected event
		}{
			{root, act("PUT", "/meshes/default", mesh), was + " Metadata"},
			{root, act("GET", "/meshes/default", ""), "get meshes//default 200 Metadata"},
			{root, act("PUT", policy(name), fmt.Sprintf(auditedPolicy, name)),
				"create meshtimeouts/default/" + name + " 201 " + profile.write},
			{mate, act("GET", policy(name), ""), "get meshtimeouts/default/" + name + " 200 " + profile.read},
			{mate, act("GET", "/meshes/default/meshtimeouts", ""), "list meshtimeouts/default/ 200 " + profile.read},
			{mate, act("DELETE", policy(name), ""), "delete meshtimeouts/default/" + name + " 200 " + profile.write},
			{mate, act("GET", "/meshes/default/dataplanes/none/_config", ""), "get dataplanes/default/none 404 Metadata"},
			{mate, act("GET", "/meshes?token="+token, ""), "list meshes// 400 Metadata"},
			{other, act("GET", "/meshes/default/meshtimeouts", ""), "list meshtimeouts/default/ 200 " + profile.read},
			{other, act("PUT", policy(name), fmt.Sprintf(auditedPolicy, name)),
				"create meshtimeouts/default/" + name + " 403 Metadata"},
			{other, act("GET", "/v1/status", ""), "get // 200 Metadata"},
			{other, act("GET", "/livez", ""), ""},
		} {
			got := step.who.Try(step.act)[0]
			if step.want == "" {
				continue
			}
			user := map[*agenttest.Person]string{root: "root"}[step.who]
			if user == "" {
				user = "uid:" + step.who.Account
			}
			if n++; !strings.Contains(" "+step.want+" ", " "+got.Got+" ") {
				t.Fatalf("%s: %s %s: %s %s", step.want, step.act.Method, step.act.Path, got.Got, got.Detail)
			}
			e := audited(t, dir, n)[n-1]
			if got := e.String(); got != user+" "+step.want || e.User.UID != step.who.Account {
				t.Errorf("%s:\n got %s of uid %s\nwant %s %s", profile.name, got, e.User.UID, user, step.want)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "logs", "audit", "audit.log"))
	agenttest.Do(t, err)
	if at := leaks.In(text); at != "" {
		t.Errorf("an event shows a secret: %s", at)
	}
	read := agenttest.Act{Do: "read", Socket: filepath.Join(dir, "logs", "audit", "audit.log")}
	for who, want := range map[*agenttest.Person]string{root: "read", mate: "read", other: "no access"} {
		if got := who.Try(read)[0]; got.Got != want {
			t.Errorf("uid %s reads the audit log: %s, want %s", who.Account, got.Got, want)
		}
	}

	// Profile None leaves only a warning in the log, which stays visible for as long as the profile
	// is active.
	reload("auditLog: {profile: None}\n", "level=WARN msg=\"the audit log is off: requests to the API leave no trace")
	root.Try(act("PUT", policy("none"), fmt.Sprintf(auditedPolicy, "none")))
	if status, body := r.Request("GET", "http://nearside/readyz?verbose", ""); status != 200 ||
		!strings.Contains(body, "auditLog.profile is None") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	reload("auditLog: {profile: Default}\n", "from=None to=Default")
	root.Try(act("DELETE", policy("none"), ""))
	events := audited(t, dir, n+3)[n:]
	for i, want := range []string{"auditLog.profile: None, before AllRequestBodies",
		"auditLog.profile: Default, before None"} {
		if got := events[i].Annotations["nearside.io/config"]; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if e := events[2]; e.Verb != "delete" {
		t.Errorf("after None: %s", &e)
	}
}

// TestAuditLogIsForRoles checks that with roles the audit files belong to the agent's primary
// group, because not every member of the socket's group may read everything.
func TestAuditLogIsForRoles(t *testing.T) {
	person := agenttest.People(t)
	dir := openDir(t)
	r := agenttest.Up(t, dir, agent.Deps{}, "api.socket.group=61000", "xds.socket.group=",
		`api.roles=[{name: logs, template: observability, subjects: [{group: "61000"}]}]`)
	mate := person(member, sockets)
	mate.Try(agenttest.Act{Do: "api", Socket: r.Addrs().API, Method: "GET", Path: "/v1/access/whoami"})
	audited(t, dir, 1)
	if got := mate.Try(agenttest.Act{Do: "read", Socket: filepath.Join(dir, "logs", "audit", "audit.log")})[0]; got.Got !=
		"no access" {
		t.Errorf("a member of the group reads the audit log: %s", got.Got)
	}
}

// TestAuditOfFiles checks that changes by resource files create events of user system:file:PATH.
func TestAuditOfFiles(t *testing.T) {
	dir := agenttest.ShortDir(t)
	resources := filepath.Join(dir, "resources")
	file := filepath.Join(resources, "a.yaml")
	agenttest.Do(t, os.Mkdir(resources, 0o755))
	agenttest.Write(t, file, "type: Mesh\nname: default\n---\n"+fmt.Sprintf(auditedPolicy, "slow")+"\n")
	r := agenttest.Up(t, dir, agent.Deps{}, "auditLog.profile=WriteRequestBodies")
	user := "system:file:" + file + " "
	want := []string{user + "create meshes//default 201 Metadata",
		user + "create meshtimeouts/default/slow 201 RequestResponse"}
	check := func(more ...string) {
		t.Helper()
		want = append(want, more...)
		var got []string
		for _, e := range audited(t, dir, len(want)) {
			got = append(got, e.String())
			if e.Annotations["nearside.io/source"] != "file:"+file || e.Annotations["nearside.io/changes"] == "" ||
				e.ObjectRef.ResourceVersion == "" ||
				(len(e.RequestObject) > 0) != (e.Level == "RequestResponse" && e.Verb != "delete") {
				t.Errorf("%+v", e)
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check()
	agenttest.Write(t, file,
		"type: Mesh\nname: default\n---\n"+strings.Replace(fmt.Sprintf(auditedPolicy, "slow"), "20s", "30s", 1)+"\n")
	check(user + "update meshtimeouts/default/slow 200 RequestResponse")
	agenttest.Write(t, file, "type: Mesh\nname: default\n")
	check(user + "delete meshtimeouts/default/slow 200 RequestResponse")
	agenttest.Write(t, file, "type: [") // an invalid file changes nothing
	agenttest.Await(t, "the fault is logged", r.Logs.Ch, func() bool {
		return strings.Contains(r.Logs.String(), "resource file has faults")
	})
	check()
}

// TestAuditLimitsChange checks that SIGHUP changes the limits of the audit log while it is written.
// No event may be lost, and a limit out of range is refused with the field, the value, and the fix.
func TestAuditLimitsChange(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	r, reload := withFile(t, dir, "{}\n", "auditLog.profile=AllRequestBodies")
	agenttest.ByAPI(t, r.Store(), agenttest.Meshes("default"))
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "---\n"+auditedPolicy+"\n", fmt.Sprintf("t%03d", i))
	}
	agenttest.ByAPI(t, r.Store(), many.String())
	n := 0
	ask := func(times int) {
		t.Helper()
		for range times {
			if status, body := r.Request("GET", "http://nearside/meshes/default/meshtimeouts?size=200", ""); status != 200 {
				t.Fatalf("%d %s", status, body)
			}
			n++
		}
		audited(t, dir, n)
	}
	ask(40)
	if files := auditFiles(t, dir); len(files) != 1 {
		t.Fatalf("with the defaults: %v", files)
	}
	reload("auditLog: {maxFileSize: 1, maxFiles: 0}\n", "key=auditLog.maxFileSize from=200 to=1",
		"key=auditLog.maxFiles from=10 to=0")
	ask(80)
	files := auditFiles(t, dir)
	if len(files) < 4 {
		t.Errorf("with 1 MB: %v", files)
	}
	for _, path := range files[1:] { // the first file exceeded the limit before the change
		if st, err := os.Stat(path); err != nil || st.Size() > 1<<20 {
			t.Errorf("%s: %v, %v", path, st.Size(), err)
		}
	}
	reload("auditLog: {maxFileSize: 1, maxFiles: -1}\n", "is not applied", "auditLog.maxFiles: -1", "set a value >= 0")
	ask(1)
	if now := auditFiles(t, dir); len(now) < len(files) {
		t.Errorf("limits with a fault were taken over: %v", now)
	}
	reload("auditLog: {maxFileSize: 1, maxFiles: 1}\n", "key=auditLog.maxFiles from=0 to=1")
	r.Request("GET", "http://nearside/meshes", "")
	agenttest.Eventually(t, "one backup is left", func() bool { return len(auditFiles(t, dir)) == 2 })
}
