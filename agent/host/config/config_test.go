package config_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func TestConfigDefaultsAreValid(t *testing.T) {
	cfg, origins, faults := agenttest.LoadConfig(t, "", nil, nil)
	if faults != nil {
		t.Fatalf("faults: %v", faults)
	}
	if got, want := cfg.API.Socket.Path, "/run/nearside/nearside.sock"; got != want {
		t.Errorf("api.socket.path = %q, want %q", got, want)
	}
	if got, want := cfg.Node.Name, "host-1.example"; got != want {
		t.Errorf("node.name = %q, want %q", got, want)
	}
	if got, want := cfg.XDS.Socket.Mode, fs.FileMode(0o660); got != want {
		t.Errorf("xds.socket.mode = %o, want %o", got, want)
	}
	if cfg.XDS.Access != nil || cfg.API.Roles != nil {
		t.Errorf("xds.access %v, api.roles %v; both are to be absent", cfg.XDS.Access, cfg.API.Roles)
	}
	for key, o := range origins {
		if o != "default" {
			t.Errorf("origin of %s = %q", key, o)
		}
	}
	for _, k := range config.Keys() {
		if origins[k.Path] == "" {
			t.Errorf("%s has no origin", k.Path)
		}
	}
}

func TestConfigPrecedence(t *testing.T) {
	const file = "node: {name: from-file, zone: from-file}\napi:\n  tcp: 127.0.0.1:1\nvips: {releaseAfter: 1}\n"
	cfg, origins, faults := agenttest.LoadConfig(t, file,
		[]string{"NEARSIDE_NODE_ZONE=from-env", "NEARSIDE_VIPS_RELEASEAFTER=2", "NEARSIDE_API_TCP=",
			"NEARSIDE_VIPS_TAG=250.0.0.0/8, fd00:1::/64"},
		[]string{"vips.releaseAfter=3", "vips.releaseAfter=4", "api.socket.group="})
	if faults != nil {
		t.Fatalf("faults: %v", faults)
	}
	got := []any{cfg.Node.Name, cfg.Node.Zone, cfg.API.TCP, cfg.VIPs.ReleaseAfter, cfg.API.Socket.Group, cfg.VIPs.Tag,
		cfg.Trust.Mode}
	want := []any{"from-file", "from-env", "127.0.0.1:1", 4, "", []string{"250.0.0.0/8", "fd00:1::/64"}, "off"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("values (-want +got):\n%s", d)
	}
	for key, want := range map[string]string{
		"node.name": "agent.yaml:1", "node.zone": "env NEARSIDE_NODE_ZONE", "api.tcp": "agent.yaml:3",
		"vips.releaseAfter": "flag", "api.socket.group": "flag", "trust.mode": "default",
	} {
		if !strings.HasSuffix(origins[key], want) {
			t.Errorf("origin of %s = %q, want it to end with %q", key, origins[key], want)
		}
	}
}

func TestConfigPaths(t *testing.T) {
	cfg, _, faults := agenttest.LoadConfig(t, `
paths: {run: run, state: /s, logs: l}
resources: {dir: res}
api: {socket: {path: a.sock, mode: 0600}, tokenFile: token}
xds: {socket: {path: /x/xds.sock, mode: "777"}}
accessLog: {receivers: [{name: a, address: "127.0.0.1:1", file: a.log, maxFiles: 3}], directories: [/srv/logs, apps]}
`, nil, []string{"trust.file=t.yaml", "gossip.bind=:1", "gossip.insecure=true"})
	for _, f := range faults {
		if !strings.Contains(f, "is not supported yet") {
			t.Errorf("fault: %v", f)
		}
	}
	dir := strings.TrimSuffix(cfg.Paths.Run, "/run")
	got := []string{cfg.Resources.Dir[0].Path, cfg.API.Socket.Path, cfg.API.TokenFile, cfg.XDS.Socket.Path,
		cfg.AccessLog.Receivers[0].File, cfg.Trust.File, cfg.AccessLog.Directories[0], cfg.AccessLog.Directories[1]}
	want := []string{dir + "/res", dir + "/run/a.sock", "/s/token", "/x/xds.sock", dir + "/l/a.log", "/s/t.yaml",
		"/srv/logs", dir + "/l/apps"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("paths (-want +got):\n%s", d)
	}
	if cfg.API.Socket.Mode != 0o600 || cfg.XDS.Socket.Mode != 0o777 {
		t.Errorf("modes %o %o", cfg.API.Socket.Mode, cfg.XDS.Socket.Mode)
	}
	r := cfg.AccessLog.Receivers[0]
	if r.MaxFileSize != 200 || r.MaxFiles != 3 {
		t.Errorf("rotation of the receiver: %+v", r)
	}
}

func TestConfigWithoutFileAndRoot(t *testing.T) {
	o := config.LoadOptions{Dir: t.TempDir(), Hostname: "h", UID: func() int { return 1000 }}
	cfg, _, faults := config.Load(o)
	if faults != nil {
		t.Fatalf("faults: %v", faults)
	}
	if got, want := cfg.API.Socket.Path, o.Dir+"/nearside-data/run/nearside.sock"; got != want {
		t.Errorf("without XDG_RUNTIME_DIR: %q, want %q", got, want)
	}
	if got, want := cfg.Paths.State, o.Dir+"/nearside-data/state"; got != want {
		t.Errorf("state: %q, want %q", got, want)
	}
	for _, c := range []struct{ env, run, state, logs string }{
		{"XDG_RUNTIME_DIR=/run/user/1000", "/run/user/1000/nearside/run", "/run/user/1000/nearside/state",
			"/run/user/1000/nearside/logs"},
		{"XDG_RUNTIME_DIR=/run/user/1000 HOME=/home/u", "/run/user/1000/nearside/run", "/home/u/.local/state/nearside/state",
			"/home/u/.local/state/nearside/logs"},
		{"XDG_RUNTIME_DIR=/run/user/1000 HOME=/home/u XDG_STATE_HOME=/s", "/run/user/1000/nearside/run", "/s/nearside/state",
			"/s/nearside/logs"},
		{"XDG_STATE_HOME=/s", o.Dir + "/nearside-data/run", "/s/nearside/state", "/s/nearside/logs"},
		{"XDG_STATE_HOME=relative HOME=/home/u", o.Dir + "/nearside-data/run", o.Dir + "/nearside-data/state",
			o.Dir + "/nearside-data/logs"},
	} {
		o.Env = strings.Fields(c.env)
		cfg, _, _ := config.Load(o)
		if got := cfg.Paths; got.Run != c.run || got.State != c.state || got.Logs != c.logs {
			t.Errorf("%s: %+v", c.env, got)
		}
	}
	o.File = "agent.yaml"
	if _, _, faults = config.Load(o); len(faults) != 1 {
		t.Errorf("a named file that is missing: %v", faults)
	}
	agenttest.Write(t, filepath.Join(o.Dir, o.File), "")
	if cfg, _, faults = config.Load(o); faults != nil || cfg.Paths.Run != "/run/nearside" {
		t.Errorf("with a file: %v %q", faults, cfg.Paths.Run)
	}
}

func TestConfigFaults(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		name, file string
		env, set   []string
		want       []string // parts of each fault, in order
	}{
		{name: "unknown keys", file: "node: {nam: a}\nfoo: 1\nDNS: {}\n",
			want: []string{"DIR/agent.yaml:1: node.nam: is not a key of the config; did you mean node.name?",
				":2: foo: is not a key", ":3: DNS: is not a key"}},
		{name: "a key in another section",
			file: "apiServer: {auditLog: {path: x}}\ndns: {gossip: 1}\nxds: {audit: {path: x}}\n",
			set:  []string{"apiServer.auditLog.path=x", "server.other.path=x"},
			want: []string{"apiServer: is not a key of the config; did you mean auditLog?",
				"dns.gossip: is not a key of the config; did you mean gossip?", "xds.audit: is not a key of the config",
				"--set: apiServer.auditLog.path: is not a key of the config; did you mean auditLog.path?",
				"--set: server.other.path: is not a key of the config"}},
		{name: "reserved section", file: "identity: {ca: x}\n", want: []string{"identity.ca: is not a key"}},
		{name: "reserved section, empty", file: "identity: {}\n"},
		{name: "duplicate key", file: "node: {zone: a}\nnode: {zone: b}\n",
			want: []string{":2: node: duplicate key, first defined in line 1; remove one"}},
		{name: "wrong types", file: "node: {name: 7}\ndns: {cacheSize: \"7\", upstreams: x}\n" +
			"mesh: {autoReachableBackends: maybe}\napi: []\nxds: {tcp: {}}\ntrust: {mode: }\n",
			want: []string{":1: node.name: 7 is a number, a string is expected: write it in quotes, \"7\"",
				"dns.cacheSize: \"7\" is a string, a whole number from 0 to 10000000 is expected: write it without quotes",
				"dns.upstreams: is not a list",
				"mesh.autoReachableBackends: \"maybe\" is a string, a boolean is expected: write true or false",
				"api: a list is given, a mapping is expected; its fields: socket, tcp, tokenFile, roles",
				"xds.tcp: a mapping is given, a string is expected", "trust.mode: has no value"}},
		{name: "all at once over the sources", file: "dns: {cacheSize: -1}\n", env: []string{"NEARSIDE_XDS_SOCKET_MODE=0999"},
			set: []string{"nonsense", "trust.mod=x", "trust.mode=on"},
			want: []string{"agent.yaml:1: dns.cacheSize: -1 is negative; set a value >= 0",
				"env NEARSIDE_XDS_SOCKET_MODE: xds.socket.mode: \"0999\" is not a set of permissions",
				"--set: nonsense: has no value", "--set: trust.mod: is not a key of the config; did you mean trust.mode?",
				"--set: trust.mode: \"on\" is not known; one of off, warn, enforce"}},
		{name: "rotation", file: "auditLog: {maxFileSize: -1, maxFiles: -1, maxFileAge: -1}\n",
			want: []string{"auditLog.maxFileSize: -1 is negative; set a value >= 0",
				"auditLog.maxFiles: -1", "auditLog.maxFileAge: -1"}},
		{name: "addresses", set: []string{"api.tcp=0.0.0.0:80", "xds.tcp=here", "dns.upstreams=1.1.1.1,example.org"},
			want: []string{"api.tcp: \"0.0.0.0:80\" is not a loopback address", "xds.tcp: \"here\" is not host:port",
				"dns.upstreams[1]: \"example.org\" is not an IP address"}},
		{name: "socket path too long", set: []string{"paths.run=/" + long},
			want: []string{"api.socket.path: /" + long + "/nearside.sock has 115 bytes, and the system takes at most 107 for " +
				"a socket; set a shorter path or a shorter paths.run", "xds.socket.path: "}},
		{name: "one socket for both", set: []string{"xds.socket.path=nearside.sock"},
			want: []string{"xds.socket.path: /run/nearside/nearside.sock is also api.socket.path; use different paths"}},
		{name: "out of the directory", set: []string{"xds.socket.path=../x.sock"},
			want: []string{"leads out of its directory"}},
		{name: "receivers together", file: "accessLog:\n  receivers:\n  - {name: a, address: \"unix:xds.sock\", file: a, " +
			"tls: {key: k}}\n  - {name: b, address: \"unix:b\", file: ./a, tls: {clientCA: k}}\n" +
			"  - {name: c, address: \"unix:./b\", file: c, tls: {cert: k}}\n",
			want: []string{"receivers[0].address: unix:/run/nearside/xds.sock is also xds.socket.path; use different paths",
				"receivers[0].tls.key: \"/var/lib/nearside/k\" has no certificate; set tls.cert too",
				"receivers[1].file: /var/log/nearside/a is also in item [0]; use different files",
				"receivers[1].tls.clientCA: \"/var/lib/nearside/k\" has no effect without TLS",
				"receivers[2].address: unix:/run/nearside/b is also accessLog.receivers[1].address",
				"receivers[2].tls.cert: \"/var/lib/nearside/k\" has no private key; set tls.key too"}},
		{name: "receiver limits", file: "accessLog:\n  minFree: -1\n  onFull: wait\n  fsync: always\n  receivers:\n  - " +
			"{name: a, address: \"unix:../a\", file: a, maxFileSize: -1, maxFiles: -2, maxFileAge: -3, maxConnections: -4}\n",
			want: []string{"accessLog.minFree: -1 is negative; set a value >= 0",
				"accessLog.onFull: \"wait\" is not known; one of block, dropNewest", "accessLog.fsync: \"always\" is not known",
				"address: \"unix:../a\" leads out of paths.run", "maxFileSize: -1 is negative; set a value >= 0",
				"maxFiles: -2 is negative", "maxFileAge: -3 is negative", "maxConnections: -4 is negative; set a value >= 0"}},
		{name: "receivers", file: "accessLog:\n  receivers:\n  - {name: a, address: \"127.0.0.1:1\", file: a}\n" +
			"  - {name: a, address: \"127.0.0.1:2\", file: b}\n  - {name: c, adress: x}\n",
			want: []string{":4: accessLog.receivers[1].name: \"a\" is also in item [0]; use different values",
				":5: accessLog.receivers[2].adress: is not a key of the config; did you mean accessLog.receivers[2].address?",
				"receivers[2].address: is required in every item", "receivers[2].file: is required in every item"}},
		{name: "receivers from a variable", env: []string{"NEARSIDE_ACCESSLOG_RECEIVERS=[{name: a, address: nope, file: f}]"},
			want: []string{"accessLog.receivers[0].address: \"nope\" is not host:port"}},
		{name: "not YAML", file: "a: [", want: []string{"not valid YAML"}},
		{name: "two documents", file: "---\n{}\n---\n{}\n",
			want: []string{":4: only one document is allowed; the second one begins here"}},
		{name: "not a mapping", file: "- 1\n", want: []string{"a list is given, a mapping is expected"}},
		{name: "aliases", file: "node: &n {zone: z}\npaths: *n\n", want: []string{"paths.zone: is not a key"}},
		{name: "alias in itself", file: "node: &n {zone: *n}\n", want: []string{""}},
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

func TestConfigVariables(t *testing.T) {
	var warned []string
	o := config.LoadOptions{Dir: t.TempDir(), UID: func() int { return 0 },
		Warn: func(s string) { warned = append(warned, s) },
		Env:  []string{"NEARSIDE_SOCKET=/x", "NEARSIDE_NODE_ZONES=x", "HOME=/root", "NEARSIDE_AUTO_REACHABLE_BACKENDS=true"}}
	cfg, origins, faults := config.Load(o)
	if faults != nil || !cfg.Mesh.AutoReachableBackends ||
		origins["mesh.autoReachableBackends"] != "env NEARSIDE_AUTO_REACHABLE_BACKENDS" {
		t.Errorf("short form: %v %v %v", faults, cfg.Mesh, origins["mesh.autoReachableBackends"])
	}
	if len(warned) != 1 || !strings.Contains(warned[0], "NEARSIDE_NODE_ZONES") {
		t.Errorf("warnings: %q", warned)
	}
	o.Env = append(o.Env, "NEARSIDE_MESH_AUTOREACHABLEBACKENDS=false")
	if cfg, _, _ := config.Load(o); cfg.Mesh.AutoReachableBackends {
		t.Error("the full name does not win over the short one")
	}
}

func TestConfigFileThatIsNone(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	agenttest.Write(t, big, strings.Repeat("# x\n", 1<<19))
	for _, name := range []string{dir, "/dev/null", big} {
		if _, _, faults := config.Load(config.LoadOptions{File: name}); len(faults) != 1 {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

// shown returns the printed config and checks that it is read back to the same config.
func shown(t *testing.T, cfg *config.Config, with config.Origins) string {
	t.Helper()
	text, err := cfg.YAML(with)
	if err != nil {
		t.Fatal(err)
	}
	reloaded, _, faults := agenttest.LoadConfig(t, string(text), nil, nil)
	if faults != nil {
		t.Fatalf("faults: %v\n%s", faults, text)
	}
	reloaded.DNS.Given = cfg.DNS.Given // describes the source of the value
	if d := cmp.Diff(cfg, reloaded); d != "" {
		t.Errorf("(-shown +read):\n%s\n%s", d, text)
	}
	if c := cfg.Changes(reloaded); c != nil {
		t.Errorf("changes: %v", c)
	}
	return string(text)
}

// TestConfigShow checks that a printed config is read back to the same config.
func TestConfigShow(t *testing.T) {
	cfg, origins, faults := agenttest.LoadConfig(t, "node: {zone: z}\n", nil,
		[]string{"vips.tag=250.0.0.0/8", "api.socket.mode=0640"})
	if faults != nil {
		t.Fatal(faults)
	}
	for _, with := range []config.Origins{nil, origins} {
		text := shown(t, cfg, with)
		if with != nil && !strings.Contains(text, "mode: \"0640\" # flag") {
			t.Errorf("no origin in\n%s", text)
		}
	}
}

func TestConfigChanges(t *testing.T) {
	a, _, _ := agenttest.LoadConfig(t, "", nil, nil)
	b, _, _ := agenttest.LoadConfig(t, "", nil, []string{"node.zone=x", "log.level=debug"})
	want := []config.Change{{Key: "node.zone", From: "default", To: "x"},
		{Key: "log.level", From: "info", To: "debug", Live: true}}
	if d := cmp.Diff(want, a.Changes(b)); d != "" {
		t.Error(d)
	}
}

func TestConfigSchema(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(config.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	for _, k := range config.Keys() {
		at := schema
		for s := range strings.SplitSeq(k.Path, ".") {
			props, _ := at["properties"].(map[string]any)
			at, _ = props[s].(map[string]any)
		}
		if doc, _ := at["description"].(string); !strings.Contains(doc, k.Doc) || !strings.Contains(doc, k.Env) {
			t.Errorf("%s: description %q", k.Path, doc)
		}
		if k.Doc == "" {
			t.Errorf("%s has no documentation", k.Path)
		}
	}
	if got := fmt.Sprint(schema["additionalProperties"]); got != "false" {
		t.Errorf("additionalProperties = %s", got)
	}
	if !slices.ContainsFunc(config.Keys(), func(k config.KeyInfo) bool {
		return k.Env == "NEARSIDE_DNS_CACHESIZE" && k.Default == "10000"
	}) {
		t.Error("NEARSIDE_DNS_CACHESIZE is not among the keys")
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("node: {name: a}\naccessLog: {receivers: [{name: a, address: \"1:1\", file: x}]}\n", "dns.listen=:1")
	f.Add("a: &a [*a]\n? {}\n: x\n<<: *a\n", "accessLog.receivers=[&a {name: *a}]")
	f.Add("api: {socket: {mode: 07777777777777}}", "dns.upstreams=,,")
	f.Add("api: {roles: [{name: a, template: viewer, subjects: [{uid: 1-2}, {group: 0}]}, {name: b, "+
		"allow: [{kinds: ['*'], verbs: [get]}]}]}\nresources: {dir: [{path: a}, {path: b, role: a}]}\n", "xds.access=[]")
	f.Add("xds: {access: [&a {user: 1, nodes: [x]}, *a, {certificate: c, bring: true}]}\n", "resources.dir=[{path: /x}]")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, file, set string) {
		o := config.LoadOptions{File: filepath.Join(dir, "agent.yaml"), Set: []string{set}, Dir: dir, Hostname: file}
		agenttest.Write(t, o.File, file)
		cfg, _, faults := config.Load(o)
		if faults != nil {
			return
		}
		text, err := cfg.YAML(nil)
		if err != nil {
			t.Fatal(err)
		}
		agenttest.Write(t, o.File, string(text))
		o.Set = nil
		reloaded, _, faults := config.Load(o)
		if faults != nil {
			t.Fatalf("a good config is shown as one with faults: %v\n%s", faults, text)
		}
		if c := cfg.Changes(reloaded); c != nil {
			t.Fatalf("shown and read back it differs: %v", c)
		}
	})
}
