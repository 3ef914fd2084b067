package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// Users of the tests. The kernel does not require accounts for them.
const (
	member   = 61001 // member of the sockets' group
	ruled    = 61002 // has an item in xds.access
	stranger = 61003 // member of the group of Envoys
	sockets  = 61000 // group of the sockets
	envoys   = 61004 // group of the xDS socket in some cases
)

// broughtBy returns a Dataplane of service payments for the metadata of an Envoy.
func broughtBy(name, service, more string) string {
	return fmt.Sprintf(`{"type":"Dataplane","mesh":"default","name":%q%s,"networking":{"address":"10.66.0.1","inbound":[{"port":80,"tags":{"kuma.io/service":%q}}]}}`, name, more, service)
}

// openDir returns a directory for an agent that other users can traverse.
func openDir(t *testing.T) string {
	t.Helper()
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Chmod(dir, 0o755))
	return dir
}

// TestWhoMayWhat checks the access rights of users to the sockets of an agent, with one process per
// user: the node IDs and keys that they are served, the Dataplanes that they may bring, the
// resources that they may read and write over the API, and the locks.
func TestWhoMayWhat(t *testing.T) {
	person := agenttest.People(t)
	people := []*agenttest.Person{person(0), person(member, sockets), person(ruled), person(stranger, envoys)}
	const rules = `xds.access=[{user: "0", nodes: ["*"], bring: true, services: ["*"], tags: ["*"]}, ` +
		`{uid: "61002", nodes: [default.web, "default.own-*"], bring: true, services: [web], tags: [team=a]}, {group: "61000", nodes: [default.other]}]`
	const roles = `api.roles=[{name: ops, template: mesh-operator, subjects: [{user: "61002"}]}, {name: logs, template: observability, subjects: [{group: "61000"}]}]`
	const timeout = `{"type":"MeshTimeout","mesh":"default","name":"%s","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"9s"}}]}}`
	const backend = `{"type":"MeshAccessLogBackend","mesh":"default","name":"%s","spec":{"name":"b","type":"tcp","conf":{"address":"192.0.2.7:5000"}}}`
	const path = `{"type":"MeshAccessLogBackend","mesh":"default","name":"%s","spec":{"name":"b","type":"file","conf":{"path":"/tmp/a.log"}}}`
	xds := func(id, dataplane string) agenttest.Act {
		return agenttest.Act{Do: "xds", NodeID: id, Secret: ownSecret, Dataplane: dataplane}
	}
	api := func(method, path, body string) agenttest.Act {
		return agenttest.Act{Do: "api", Method: method, Path: path, Body: body}
	}
	put := func(plural, text string) agenttest.Act {
		return api("PUT", "/meshes/default/"+plural+"/NAME", text)
	}
	const envoyGroup = "xds.socket.group=61004"
	start := func(options []string) *agenttest.Running {
		set := []string{"xds.socket.group=61000", "api.socket.group=61000"}
		for _, s := range options {
			if s == "open" {
				set = append(set, "xds.socket.mode=0666", "api.socket.mode=0666")
			} else {
				set = append(set, s)
			}
		}
		r := agenttest.Up(t, openDir(t), agent.Deps{}, set...)
		agenttest.ByAPI(t, r.Store(), secureMesh("ca")+securePair("")+
			"---\n"+broughtBy("other", "other", "")+"\n---\n"+broughtBy("payments", "payments", "")+
			"\n---\n"+broughtBy("mine", "web", `,"labels":{"nearside.io/user":"61001"}`)+
			"\n---\n"+broughtBy("pinned", "web", `,"labels":{"nearside.io/user":"61002"}`)+"\n")
		return r
	}
	cases := []struct {
		name string
		set  []string
		act  agenttest.Act
		want string // results of root, member, ruled, stranger; see the map below for short forms
	}{
		{"own mode: node from a file", nil, xds("default.web", ""), "key denied -- --"},
		{"own mode: node pinned to the member", nil, xds("default.mine", ""), "key key -- --"},
		{"own mode: node pinned to another", nil, xds("default.pinned", ""), "key denied -- --"},
		{"own mode: node of nobody", nil, xds("default.own-", broughtBy("own-", "web", "")), "key denied -- --"},
		{"own mode: read", nil, api("GET", "/meshes", ""), "200 200 -- --"},
		{"own mode: write", nil, put("meshtimeouts", timeout), "201 201 -- --"},
		{"own mode: lock of the state", nil, agenttest.Act{Do: "lock", Socket: "state/nearside.lock"}, "held -- -- --"},
		{"own mode: lock of the run directory", nil, agenttest.Act{Do: "lock", Socket: "run/nearside.pid"}, "held -- -- --"},

		{"unpinned allowed: node from a file", []string{"xds.unpinned=allow"}, xds("default.web", ""), "key key -- --"},
		{"unpinned allowed: node pinned to another", []string{"xds.unpinned=allow"}, xds("default.pinned", ""),
			"key denied -- --"},
		{"another group: node pinned to the member", []string{envoyGroup}, xds("default.mine", ""), "key -- -- denied"},
		{"another group: read", []string{envoyGroup}, api("GET", "/meshes", ""), "200 200 -- --"},
		{"another group: write", []string{envoyGroup}, put("meshtimeouts", timeout), "201 201 -- --"},

		{"sockets open to all: node from a file", []string{"open"}, xds("default.web", ""), "key denied denied denied"},
		{"sockets open to all: node pinned to the member", []string{"open"}, xds("default.mine", ""),
			"key key denied denied"},
		{"sockets open to all: bring", []string{"open"}, xds("default.own-", broughtBy("own-", "payments", "")),
			"key denied denied denied"},
		{"sockets open to all: read", []string{"open"}, api("GET", "/meshes", ""), "200 200 200 200"},
		{"sockets open to all: write", []string{"open"}, put("meshtimeouts", timeout), "201 201 403 403"},
		{"sockets open to all: apply", []string{"open"}, api("POST", "/v1/apply", timeout), "200 200 403 403"},
		{"sockets open to all: delete", []string{"open"}, api("DELETE", "/meshes/default/meshtimeouts/none", ""),
			"404 404 403 403"},

		{"rules: node of the ruled one", []string{"open", rules}, xds("default.web", ""), "key denied key denied"},
		{"rules: node of the group", []string{"open", rules}, xds("default.other", ""), "key key denied denied"},
		{"rules: node of nobody", []string{"open", rules}, xds("default.payments", ""), "key denied denied denied"},
		{"rules: bring own service", []string{"open", rules}, xds("default.own-", broughtBy("own-", "web", "")),
			"key denied key denied"},
		{"rules: bring another's service", []string{"open", rules}, xds("default.own-", broughtBy("own-", "payments", "")),
			"key denied denied denied"},
		{"rules: bring another's tag", []string{"open", rules},
			xds("default.own-", broughtBy("own-", "web", `,"labels":{"team":"b"}`)), "key denied denied denied"},
		{"rules: bring own tag", []string{"open", rules},
			xds("default.own-", broughtBy("own-", "web", `,"labels":{"team":"a"}`)), "key denied key denied"},
		{"rules: pinned to another", []string{"open", rules}, xds("default.pinned", ""), "key denied denied denied"},

		{"roles: read", []string{"open", roles}, api("GET", "/meshes/default/meshtimeouts", ""), "200 200 200 403"},
		{"roles: write", []string{"open", roles}, put("meshtimeouts", timeout), "201 403 201 403"},
		{"roles: write a backend", []string{"open", roles}, put("meshaccesslogbackends", backend), "201 201 201 403"},
		{"roles: write a backend with a path", []string{"open", roles}, put("meshaccesslogbackends", path),
			"201 403 201 403"},
		{"roles: whoami", []string{"open", roles}, api("GET", "/v1/access/whoami", ""), "200 200 200 200"},
		{"roles: status", []string{"open", roles}, api("GET", "/v1/status", ""), "200 200 200 403"},
		{"roles: livez", []string{"open", roles}, api("GET", "/livez", ""), "200 200 200 200"},
	}
	bySet := map[string][]int{} // cases by agent settings
	for n := range cases {
		key := strings.Join(cases[n].set, " ")
		bySet[key] = append(bySet[key], n)
	}
	for _, of := range bySet {
		r := start(cases[of[0]].set)
		for i, p := range people {
			var acts []agenttest.Act
			for _, n := range of {
				act := cases[n].act
				output := fmt.Sprintf("t%d-%d", n, i) // each user writes a different resource
				act.Path, act.Body = strings.Replace(act.Path, "NAME", output, 1), strings.Replace(act.Body, "%s", output, 1)
				act.NodeID, act.Dataplane = strings.Replace(act.NodeID, "own-", fmt.Sprintf("own-%d", n), 1),
					strings.Replace(act.Dataplane, "own-", fmt.Sprintf("own-%d", n), 1)
				switch act.Do {
				case "xds":
					act.Socket = r.Addrs().XDS
				case "api":
					act.Socket = r.Addrs().API
				default:
					act.Socket = filepath.Join(r.Dir, act.Socket)
				}
				acts = append(acts, act)
			}
			outcomes := p.Try(acts...) // in one process
			for at, n := range of {
				c, got, want := cases[n], outcomes[at], strings.Fields(cases[n].want)[i]
				if w, ok := map[string]string{"key": "served key", "denied": "PermissionDenied", "--": "no access"}[want]; ok {
					want = w
				}
				if got.Got != want {
					t.Errorf("%s: uid %s: %s (%s), want %s", c.name, p.Account, got.Got, got.Detail, want)
				}
				if got.Got == "PermissionDenied" && (!strings.Contains(got.Detail, p.Account) ||
					!strings.Contains(got.Detail, "xds.access") && !strings.Contains(got.Detail, "nearside.io/user: ")) {
					t.Errorf("%s: uid %s is not told who was refused and what to set: %s", c.name, p.Account, got.Detail)
				}
				if c.act.Do == "xds" {
					agenttest.Gone(t, r, acts[at].NodeID)
				}
			}
		}
	}
}
