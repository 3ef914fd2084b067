package config_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

const doors = `api:
  roles:
  - name: logs
    template: observability
    subjects: [{group: 100}, {uid: 1000-1999, token: "ci-*"}]
  - name: timeouts
    subjects:
    - {user: root}
    allow:
    - {kinds: [MeshTimeout], meshes: [default], names: ["web-*"], verbs: [create, update]}
xds:
  tcp: 10.0.0.1:5678
  tls: {cert: x.pem, key: x.key, clientCA: /ca.pem}
  access:
  - {user: root, nodes: ["*"], bring: true, services: ["*"]}
  - {uid: 1000, nodes: [default.web]}
  - {certificate: default.web, nodes: [default.web]}
resources:
  dir:
  - {path: a}
  - {path: /b, role: logs}
`

// TestConfigItems reads lists of items from a file and, as JSON, from variables and flags.
func TestConfigItems(t *testing.T) {
	cfg, origins, faults := agenttest.LoadConfig(t, doors, nil, nil)
	if faults != nil {
		t.Fatal(faults)
	}
	roles := []access.Role{
		{Name: "logs", Template: "observability",
			Subjects: []access.Matcher{{Group: "100"}, {UID: "1000-1999", Token: "ci-*"}}},
		{Name: "timeouts", Subjects: []access.Matcher{{User: "root"}},
			Allow: []access.Allow{{Kinds: []string{"MeshTimeout"}, Meshes: []string{"default"}, Names: []string{"web-*"},
				Verbs: []string{"create", "update"}}}},
	}
	rules := []access.ProxyRule{
		{Matcher: access.Matcher{User: "root"}, Nodes: []string{"*"}, Bring: true, Services: []string{"*"}},
		{Matcher: access.Matcher{UID: "1000"}, Nodes: []string{"default.web"}},
		{Certificate: "default.web", Nodes: []string{"default.web"}},
	}
	dir := strings.TrimSuffix(cfg.Resources.Dir[0].Path, "/a")
	dirs := []config.ResourceDir{{Path: dir + "/a"}, {Path: "/b", Role: "logs"}}
	for what, d := range map[string]string{
		"api.roles": cmp.Diff(roles, cfg.API.Roles), "xds.access": cmp.Diff(rules, cfg.XDS.Access),
		"resources.dir": cmp.Diff(dirs, cfg.Resources.Dir),
	} {
		if d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	if got, want := cfg.XDS.TLS.Cert, "/var/lib/nearside/x.pem"; got != want || !filepath.IsAbs(dir) {
		t.Errorf("xds.tls.cert = %q, want %q; resources below %q", got, want, dir)
	}
	if got := origins["xds.access"]; !strings.HasSuffix(got, "agent.yaml:14") {
		t.Errorf("origin of xds.access = %q", got)
	}

	asJSON := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	other, origins, faults := agenttest.LoadConfig(t, "", []string{"NEARSIDE_API_ROLES=" + asJSON(roles)},
		[]string{"xds.access=" + asJSON(rules), "resources.dir=[{path: " + dir + "/a}, {path: /b, role: logs}]"})
	if faults != nil {
		t.Fatal(faults)
	}
	for what, d := range map[string]string{
		"api.roles": cmp.Diff(roles, other.API.Roles), "xds.access": cmp.Diff(rules, other.XDS.Access),
		"resources.dir": cmp.Diff(dirs, other.Resources.Dir), "origins": cmp.Diff([]string{"env NEARSIDE_API_ROLES",
			"flag"}, []string{origins["api.roles"], origins["xds.access"]}),
	} {
		if d != "" {
			t.Errorf("%s from variables and flags (-want +got):\n%s", what, d)
		}
	}
}

// TestConfigItemsShow checks that printed items are read back unchanged, including absent and empty
// lists.
func TestConfigItemsShow(t *testing.T) {
	for name, file := range map[string]string{
		"items": doors, "absent": "xds: {access: }\n",
		"a section in an item": "accessLog: {receivers: [{name: a, address: '127.0.0.1:1', file: f, tls: {cert: c, " +
			"key: k}}]}\n",
		"empty":                     "xds: {access: []}\napi: {roles: []}\n",
		"one directory":             "resources: {dir: /r}\n",
		"one directory with a role": "resources: {dir: [{path: /r, role: viewer}]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			cfg, origins, faults := agenttest.LoadConfig(t, file, nil, nil)
			if faults != nil {
				t.Fatal(faults)
			}
			for _, with := range []config.Origins{nil, origins} {
				text := shown(t, cfg, with)
				if name == "one directory" && !strings.Contains(text, "dir: /r") {
					t.Errorf("one directory is not shown as a text:\n%s", text)
				}
			}
		})
	}
	if cfg, _, _ := agenttest.LoadConfig(t, "xds: {access: []}\n", nil, nil); cfg.XDS.Access == nil {
		t.Error("an empty xds.access is taken for an absent one")
	}
	a, _, _ := agenttest.LoadConfig(t, "", nil, nil)
	b, _, _ := agenttest.LoadConfig(t, "", nil, []string{"xds.access=[]"})
	if d := cmp.Diff([]config.Change{{Key: "xds.access", From: "null", To: "[]"}}, a.Changes(b)); d != "" {
		t.Error(d)
	}
}

func TestConfigItemFaults(t *testing.T) {
	for _, c := range []struct {
		name, file string
		env, set   []string
		want       []string // parts of each fault, in order
	}{
		{name: "all at once, with lines", file: `api:
  roles:
  - {name: UPPER, subjects: [{uid: 5-1, usr: a}], allow: [{kinds: [], verbs: get}]}
  - name: b
    name: c
    template: viewr
    subjects:
    - {group: "a b", cgroup: x, user: 0x10}
    - web
    -
`, want: []string{
			`agent.yaml:3: api.roles[0].name: "UPPER" is not a valid name`,
			`:3: api.roles[0].subjects[0].uid: "5-1" is empty`,
			`:3: api.roles[0].subjects[0].usr: is not a key of the config; did you mean api.roles[0].subjects[0].user?`,
			`:3: api.roles[0].allow[0].kinds: is empty; add at least one item`,
			`:3: api.roles[0].allow[0].verbs: is not a list; write [a, b]`,
			`:5: api.roles[1].name: duplicate key, first defined in line 4; remove one`,
			`:6: api.roles[1].template: "viewr" is not known; one of mesh-operator, observability, viewer, kubernetes`,
			`:8: api.roles[1].subjects[0].group: "a b" is neither a name nor a number`,
			`:8: api.roles[1].subjects[0].cgroup: "x" is not a path of a cgroup`,
			`:8: api.roles[1].subjects[0].user: 0x10 is a number, a string is expected: write it in quotes, "0x10"`,
			`:9: api.roles[1].subjects[1]: "web" is a string, a mapping is expected; its fields: user, group, uid, token, cgroup`,
			`:10: api.roles[1].subjects[2]: the item is empty; give it a value or remove it; its fields: user, group, uid, token, cgroup`,
		}},
		{name: "missing keys", file: "api: {roles: [{allow: [{meshes: [a]}]}]}\n",
			want: []string{"api.roles[0].allow[0].kinds: is required in every item",
				"api.roles[0].allow[0].verbs: is required in every item", "api.roles[0].name: is required in every item"}},
		{name: "wrong types", file: "xds: {access: {user: root}}\napi: {roles: 7}\n",
			want: []string{"xds.access: is not a list; write it like [{user: envoy, nodes: [default.web]}], or [] for none",
				"api.roles: is not a list; write it like [{name: ops"}},
		{name: "empty texts", set: []string{"xds.access=[{user: root, nodes: ['']}]"},
			want: []string{"--set:1: xds.access[0].nodes[0]: is empty; set a text or remove the item"}},
		{name: "not YAML", env: []string{"NEARSIDE_XDS_ACCESS=[{"},
			want: []string{"env NEARSIDE_XDS_ACCESS: xds.access: not valid YAML"}},
		{name: "rules that name no peer", file: "xds:\n  access: [{nodes: [a]}, {user: root}, {nodes: [b]}]\n",
			want: []string{"agent.yaml:2: xds.access[0]: it matches no peer; set user, group, uid, cgroup, or token",
				"xds.access[2]: it matches no peer"}},
		{name: "roles", file: "api:\n  roles: [{name: a}, {name: a, template: viewer, subjects: [{}]}, {name: viewer, " +
			"allow: [{kinds: ['*'], verbs: [write]}]}]\n", want: []string{
			"agent.yaml:2: api.roles[0]: the role allows nothing; set template or allow",
			"api.roles[1].name: \"a\" is already the name of another role", "api.roles[1].subjects[0]: it matches no peer",
			"api.roles[2].name: \"viewer\" is a built-in role", "api.roles[2].allow[0].verbs: \"write\" is not a verb"}},
		{name: "directories", set: []string{"resources.dir=[{path: /a}, {path: /a/, role: viewr}, {path: /a/b}, " +
			"{path: /ab, role: viewer}]"}, want: []string{
			"--set: resources.dir[1].path: /a is also item [0]; list each directory once",
			`resources.dir[1].role: "viewr" is not a role; use one of api.roles or a built-in one (mesh-operator, observability, viewer, kubernetes); did you mean viewer?`,
			"resources.dir[2].path: /a/b and /a of item [0] are nested; use separate directories",
			"resources.dir[2].path: /a/b and /a of item [1] are nested"}},
		{name: "no directory", set: []string{"resources.dir="},
			want: []string{"--set: resources.dir: is empty; set a path"}},
		{name: "no directory in a list", file: "resources: {dir: []}\n",
			want: []string{"resources.dir: is empty; add at least one item"}},
		{name: "a directory of the wrong type", file: "resources: {dir: 7}\n",
			want: []string{"resources.dir: 7 is a number, a string is expected: write it in quotes, \"7\""}},
		{name: "too many directories", set: []string{"resources.dir=[" + strings.Repeat("{path: /x},", 17) + "]"},
			want: []string{"resources.dir: has 17 items; at most 16 are allowed"}},
		{name: "TCP on a network", set: []string{"xds.tcp=10.0.0.1:1"}, want: []string{
			`--set: xds.tcp: "10.0.0.1:1" is not a loopback address, and tokens and configs would cross the network unencrypted; set xds.tls.cert and xds.tls.key, use 127.0.0.1 or [::1], or set xds.insecure: true`}},
		{name: "TCP on all addresses", set: []string{"xds.tcp=:1"},
			want: []string{"xds.tcp: \":1\" is not a loopback address"}},
		{name: "TCP on loopback", set: []string{"xds.tcp=[::1]:1"}},
		{name: "TCP without protection", set: []string{"xds.tcp=:1", "xds.insecure=true"}},
		{name: "TCP with TLS", set: []string{"xds.tcp=:1", "xds.tls.cert=/c", "xds.tls.key=/k"}},
		{name: "half of TLS", set: []string{"xds.tls.key=/k", "xds.tls.clientCA=/c"}, want: []string{"xds.tls.key: \"/k\" " +
			"has no certificate; set xds.tls.cert too", "xds.tls.clientCA: \"/c\" has no effect without TLS"}},
		{name: "the other half", set: []string{"xds.tls.cert=/c"},
			want: []string{"xds.tls.cert: \"/c\" has no private key; set xds.tls.key too"}},
		{name: "aliases of aliases", file: "api: {roles: [&r {name: a, allow: [&a {kinds: &k [" + strings.Repeat("x,", 200) +
			"], verbs: *k}" + strings.Repeat(",*a", 250) + "]}" + strings.Repeat(",*r", 60) + "]}\n",
			want: []string{"too many values with aliases expanded (at most 131072)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, got := agenttest.LoadConfig(t, c.file, c.env, c.set)
			if len(got) != len(c.want) {
				t.Fatalf("%d faults, want %d:\n%s", len(got), len(c.want), strings.Join(got, "\n"))
			}
			for i := range got {
				if !strings.Contains(got[i], c.want[i]) {
					t.Errorf("fault %d\n got %s\nwant … %s", i, got[i], c.want[i])
				}
			}
		})
	}
}

// TestConfigKinds checks that roles may name only known kinds.
func TestConfigKinds(t *testing.T) {
	cfg, _, faults := agenttest.LoadConfig(t, "", nil,
		[]string{"api.roles=[{name: a, allow: [{kinds: [MeshTimeouts, Mesh, '*', Nothing, Agent], verbs: [get]}]}]"})
	if faults != nil {
		t.Fatal(faults)
	}
	got := cfg.CheckKinds([]string{"Mesh", "MeshTimeout"})
	if len(got) != 2 ||
		got[0].String() != `api.roles[0].allow[0].kinds[0]: unknown kind "MeshTimeouts"; did you mean MeshTimeout?` ||
		got[1].String() != `api.roles[0].allow[0].kinds[3]: unknown kind "Nothing"; known are Mesh, MeshTimeout` {
		t.Errorf("faults: %v", got)
	}
}

// TestConfigTrust checks the keys of trust, which need a pool.
func TestConfigTrust(t *testing.T) {
	for set, want := range map[string]string{
		"trust.mode=enforce":   "trust.mode: is set but gossip.bind is empty",
		"trust.file=/t":        "trust.file: is set but gossip.bind is empty",
		"gossip.admit=key":     "gossip.admit: is set but gossip.bind is empty",
		"gossip.admit=anybody": `gossip.admit: "anybody" is not known; one of key, enrolled`,
		"trust.mode=off":       "",
	} {
		_, _, got := agenttest.LoadConfig(t, "", nil, []string{set})
		if want == "" {
			if got != nil {
				t.Errorf("%s: %v", set, got)
			}
		} else if len(got) != 1 || !strings.HasPrefix(got[0], "--set: "+want) {
			t.Errorf("%s:\n got %v\nwant … %s", set, got, want)
		}
	}
	pool := []string{"gossip.bind=:7946", "gossip.insecure=true"}
	cfg, _, got := agenttest.LoadConfig(t, "trust:\n  mode: warn\n  file: t.trust\ngossip: {admit: enrolled}\n", nil, pool)
	if got != nil || cfg.Trust.Mode != "warn" || cfg.Gossip.Admit != "enrolled" ||
		!strings.HasSuffix(cfg.Trust.File, "/t.trust") {
		t.Errorf("from a file: %+v %v", cfg.Trust, got)
	}
}

// TestConfigWarnings checks the warnings about settings that are less secure than the default.
func TestConfigWarnings(t *testing.T) {
	for set, want := range map[string]string{
		"xds.access=[]":                 "xds.access is []",
		"api.roles=[]":                  "api.roles is []",
		"xds.access=[{user: nouser-x}]": `xds.access[0]: the user "nouser-x" does not exist`,
		"api.roles=[{name: a, template: viewer, subjects: [{group: nogroup-x}]}]": `api.roles[0].subjects[0]: the group "nogroup-x" does not exist`,
		"xds.insecure=true":                     "xds.tcp is empty, so xds.insecure and xds.tls have no effect",
		"xds.tcp=127.0.0.1:0 xds.insecure=true": "xds.insecure is true: every host that reaches xds.tcp",
		"node.zone=a":                           "",
	} {
		var got []string
		_, _, faults := config.Load(config.LoadOptions{Dir: t.TempDir(), Hostname: "h", UID: func() int { return 0 },
			Warn: func(s string) { got = append(got, s) }, Set: splitSet(set)})
		if faults != nil {
			t.Errorf("%s: %v", set, faults)
		}
		if want == "" && got != nil || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], want)) {
			t.Errorf("%s:\n got %q\nwant … %s", set, got, want)
		}
	}
}

// splitSet splits pairs at spaces outside lists.
func splitSet(s string) []string {
	if strings.Contains(s, "[") {
		return []string{s}
	}
	return strings.Fields(s)
}

// TestSecretsAreNeeded checks that a pool requires keys or gossip.insecure, and that metrics over
// the network require a token.
func TestSecretsAreNeeded(t *testing.T) {
	for set, want := range map[string]string{
		"metrics.listen=:9902": "metrics.tokenFile: is required: otherwise every host that reaches :9902 could read " +
			"the metrics",
		"metrics.listen=:9902 metrics.tokenFile=/t": "",
		"metrics.listen=127.0.0.1:9902 api.tcp=127.0.0.1:9902 metrics.tokenFile=/t": "metrics.listen: \"127.0.0.1:9902\" " +
			"is also api.tcp",
		"gossip.bind=:7946": "gossip.keyringFile: is required: otherwise any host that reaches gossip.bind could " +
			"be a member",
		"gossip.bind=:7946 gossip.insecure=true":  "",
		"gossip.bind=:7946 gossip.keyringFile=/k": "",
		"gossip.bind=:7946 gossip.keyringFile=/k gossip.insecure=true": "gossip.insecure: contradicts " +
			"gossip.keyringFile",
		"gossip.join=a:1": "gossip.join: is set " +
			"but gossip.bind is empty",
		"gossip.bind=host:7946 gossip.insecure=true": `gossip.bind: "host" is not an IP address`,
	} {
		_, _, faults := config.Load(config.LoadOptions{Set: strings.Fields(set)})
		got := ""
		if len(faults) > 0 {
			got = faults[0].String()
		}
		if (got != "") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", set, got, want)
		}
	}
}
