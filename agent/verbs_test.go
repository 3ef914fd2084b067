package agent_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// verbRoles are the roles of TestVerbsByRoleAndMode.
const verbRoles = `api.roles=[{name: ops, template: mesh-operator, subjects: [{uid: "62001"}]},
 {name: obs, template: observability, subjects: [{uid: "62002"}]},
 {name: viewer, template: viewer, subjects: [{uid: "62003"}]},
 {name: patcher, subjects: [{uid: "62004"}], allow: [{kinds: [MeshProxyPatch], verbs: ["*"]}]},
 {name: unsafe, subjects: [{uid: "62005"}, {token: ci}],
  allow: [{kinds: [MeshProxyPatch], verbs: ["*"], features: [patch-unsafe]}]},
 {name: logger, subjects: [{uid: "62006"}],
  allow: [{kinds: [MeshAccessLogBackend], verbs: ["*"], features: [log-path]}]},
 {name: nodes, subjects: [{uid: "62007"}], allow: [{kinds: [Agent], verbs: ["*"]}]}]`

// verbCell is a row of the table: a request, and the users who may send it.
type verbCell struct {
	name, method, path, body string
	want                     string // one letter for each user: y or n
}

// verbTable is the table of requests by role. The users are root, ops, obs, viewer, patcher,
// unsafe, logger, nodes, a member of the socket's group without a role, and a token of the role
// unsafe.
var verbTable = func() []verbCell {
	const (
		patches  = "/meshes/default/meshproxypatches/"
		backends = "/meshes/default/meshaccesslogbackends/"
		timeout  = `{"type":"MeshTimeout","mesh":"default","name":"NAME","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"9s"}}]}}`
		backend  = `{"type":"MeshAccessLogBackend","mesh":"default","name":"NAME","spec":{"name":"NAME","type":"%s","conf":{"%s":"%s"}}}`
		logging  = `{"type":"Mesh","name":"default","logging":{"backends":[{"name":"a","type":"file","conf":{"path":"/tmp/NAME"}}]}}`
	)
	safe, unsafe := patchNamed("NAME", "connectTimeout: 2s"), patchNamed("NAME", "{outlierDetection: {}, "+
		"eds_cluster_config: {eds_config: {path_config_source: {path: /tmp/NAME}}}}")
	return []verbCell{
		{"get", "GET", patches + "SEED", "", "yyyyyynnny"},
		{"list", "GET", "/meshes/default/meshproxypatches", "", "yyyyyynnny"},
		{"history", "GET", "/v1/history/meshproxypatches/default/SEED", "", "yyyyyynnny"},
		{"inspect a proxy", "GET", "/v1/dataplanes/default/web/status", "", "yyyynnnnnn"},
		{"inspect the status", "GET", "/v1/status", "", "yyyyyyyyny"},
		{"create", "PUT", "/meshes/default/meshtimeouts/NAME", timeout, "yynnnnnnnn"},
		{"create a patch", "PUT", patches + "NAME", safe, "yynnyynnny"},
		{"create an unsafe patch", "PUT", patches + "unsafe-NAME", strings.ReplaceAll(unsafe, "NAME", "unsafe-NAME"),
			"yynnnynnny"},
		{"apply an unsafe patch", "POST", "/v1/apply", strings.ReplaceAll(unsafe, "NAME", "apply-NAME"), "yynnnynnny"},
		{"update a patch", "PUT", patches + "SEED", strings.ReplaceAll(safe, "NAME", "SEED"), "yynnyynnny"},
		{"update a patch to an unsafe one", "PUT", patches + "SEED", strings.ReplaceAll(unsafe, "NAME", "SEED"),
			"yynnnynnny"},
		{"roll back to an unsafe patch", "POST", "/v1/rollback",
			`{"type":"MeshProxyPatch","mesh":"default","name":"SEED","revision":REVISION}`, "yynnnynnny"},
		{"create a log to a collector", "PUT", backends + "NAME", fmt.Sprintf(backend, "tcp", "address", "192.0.2.7:1"),
			"yyynnnynnn"},
		{"create a log to a path", "PUT", backends + "path-NAME", strings.ReplaceAll(fmt.Sprintf(backend, "file", "path",
			"/tmp/a"), "NAME", "path-NAME"), "yynnnnynnn"},
		{"log of a mesh to a path", "PUT", "/meshes/default", logging, "yynnnnnnnn"},
		{"delete", "DELETE", patches + "SEED", "", "yynnyynnny"},
		{"inspect Agent: log level", "GET", "/v1/debug/loglevel", "", "yynynnnynn"},
		{"inspect Agent: keyring", "GET", "/v1/keyring", "", "yynynnnynn"},
		{"update Agent: log level", "PUT", "/v1/debug/loglevel", `{"level":"info"}`, "yynnnnnynn"},
		{"update Agent: profile", "GET", "/v1/debug/pprof?profile=goroutine", "", "yynnnnnynn"},
		{"update Agent: forget", "POST", "/v1/members/forget", `{"node":"none"}`, "yynnnnnynn"},
		{"update Agent: join", "POST", "/v1/members/join", `{"addresses":["127.0.0.1:1"]}`, "yynnnnnynn"},
	}
}()

// patchNamed returns a MeshProxyPatch of all outbound clusters.
func patchNamed(name, value string) string {
	return fmt.Sprintf(`{"type":"MeshProxyPatch","mesh":"default","name":%q,"spec":{"targetRef":{"kind":"Mesh"},"default":{"appendModifications":[{"cluster":{"operation":"Patch","match":{"name":"none"},"value":%q}}]}}}`, name, value)
}

// verbMode is a mode of trust, with the permissions of the node's key in the mode enforce.
type verbMode struct {
	name, mode string
	grant      string            // role of the node; "" for none
	want       func(string) bool // reports whether the mode permits a write that roles permit
}

var verbModes = []verbMode{
	{"off", "off", "", func(string) bool { return true }},
	{"warn", "warn", "", func(string) bool { return true }},
	{"enforce", "enforce", `{name: node, kinds: ["*"], verbs: ["*"]}`, func(string) bool { return true }},
	{"enforce without features", "enforce",
		`{name: node, kinds: [Mesh, MeshTimeout, MeshProxyPatch, MeshAccessLogBackend, Dataplane], verbs: ["*"]}`,
		func(name string) bool {
			return !strings.Contains(name, "unsafe") && !strings.Contains(name, "to a path")
		}},
	{"enforce without a grant", "enforce", "", func(string) bool { return false }},
}

// TestVerbsByRoleAndMode tries each request as each user, in a process of that user, in each mode
// of trust. In the mode enforce, the role of the node limits the writes of all users.
func TestVerbsByRoleAndMode(t *testing.T) {
	person := agenttest.People(t)
	var people []*agenttest.Person
	for _, uid := range []uint32{0, 62001, 62002, 62003, 62004, 62005, 62006, 62007, 62008, 62009} {
		people = append(people, person(uid, sockets))
	}
	for _, m := range verbModes {
		t.Run(m.name, func(t *testing.T) {
			dir := openDir(t)
			bearer := newToken(t, dir, token.Claims{Subject: "ci", Audience: token.AudienceAPI})
			set := []string{"api.socket.group=61000", "api.socket.mode=0666", "api.tcp=127.0.0.1:0", verbRoles,
				"gossip.bind=127.0.0.1:0", "gossip.insecure=true"}
			r := agenttest.Up(t, dir, agent.Deps{}, append(set, "trust.mode="+strings.Replace(m.mode, "enforce", "warn", 1))...)
			agenttest.ByAPI(t, r.Store(), "type: Mesh\nname: default\n---\n"+
				agenttest.DataplaneText("default", "web", "10.0.0.1"))
			first := make([]string, len(people)) // revisions of the unsafe seeds
			for i := range people {
				seed := fmt.Sprintf("seed-%d", i)
				agenttest.ByAPI(t, r.Store(), patchNamed(seed, "edsClusterConfig: {edsConfig: {path: /tmp/x}}"))
				rec, _ := r.Store().Snapshot().Get(resource.Key{Kind: "MeshProxyPatch", Mesh: "default", Name: seed})
				first[i] = strconv.FormatUint(rec.Revision, 10)
				agenttest.ByAPI(t, r.Store(), patchNamed(seed, "connectTimeout: 1s"))
			}
			if m.mode == "enforce" {
				agenttest.Do(t, r.Stop())
				file := filepath.Join(dir, "trust.yaml")
				agenttest.Do(t, os.WriteFile(file, grantFile(t, dir, m.grant), 0o644))
				r = agenttest.Up(t, dir, agent.Deps{}, append(set, "trust.mode=enforce", "trust.file="+file)...)
			}
			for i, p := range people {
				fill := strings.NewReplacer("NAME", fmt.Sprintf("n%d", i), "SEED", fmt.Sprintf("seed-%d", i),
					"REVISION", first[i])
				var acts []agenttest.Act
				for _, c := range verbTable {
					act := agenttest.Act{Do: "api", Socket: r.Addrs().API, Method: c.method, Path: fill.Replace(c.path),
						Body: fill.Replace(c.body)}
					if i == len(people)-1 {
						act.Socket, act.Token = r.Addrs().APITCP.String(), bearer
					}
					acts = append(acts, act)
				}
				for n, got := range p.Try(acts...) {
					c := verbTable[n]
					want, done := c.want[i] == 'y', got.Got != "401" && got.Got != "403" && got.Got[0] != '5'
					if c.writes() {
						want, done = want && m.want(c.name), got.Got == "200" || got.Got == "201"
					}
					if done != want {
						t.Errorf("%s by uid %s: %s %s", c.name, p.Account, got.Got, got.Detail)
					}
				}
			}
		})
	}
}

// writes reports whether the request stores or deletes a resource.
func (c *verbCell) writes() bool {
	return c.method != "GET" && !strings.HasPrefix(c.name, "update Agent")
}

// grantFile returns a trust file that grants a role to the node whose state is below a directory.
func grantFile(t *testing.T, dir, role string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "state", "node-key"))
	agenttest.Do(t, err)
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	agenttest.Do(t, err)
	public, private, err := ed25519.GenerateKey(nil)
	agenttest.Do(t, err)
	document := fmt.Sprintf("cluster: default\nversion: 1\nmode: enforce\nthreshold: 1\nroots:\n- {name: root, key: %s}\n",
		trust.PublicKey(public))
	if role != "" {
		document += fmt.Sprintf("roles:\n- %s\nnodes:\n- {name: a, key: %s, role: node}\n", role,
			trust.ID(sign.Fingerprint(key.(ed25519.PrivateKey).Public().(ed25519.PublicKey))))
	}
	e := &trust.Envelope{Document: []byte(document)}
	agenttest.Do(t, e.Sign(sign.Key(private)))
	return e.Encode()
}
