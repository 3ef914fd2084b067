package envoybin_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/envoybin"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// verified contains all parts that a static config must convert: mTLS, routes, endpoints, and logs.
const verified = `
type: Mesh
name: default
mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}
---
type: Dataplane
mesh: default
name: web
networking:
  address: 192.0.2.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound: [{port: 10001, tags: {kuma.io/service: backend}}]
---
type: Dataplane
mesh: default
name: backend
networking:
  address: 192.0.2.2
  inbound: [{port: 9000, tags: {kuma.io/service: backend, kuma.io/protocol: http}}]
---
type: MeshAccessLog
mesh: default
name: all
spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: /var/log/mesh/all.log}}]}}]}
---
type: MeshTimeout
mesh: default
name: t
spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 5s}}]}
`

// fakeEnvoy returns a program that runs a script; the config is the file $5.
func fakeEnvoy(t *testing.T, script string) *envoybin.Binary {
	t.Helper()
	path := filepath.Join(t.TempDir(), "envoy")
	syscall.ForkLock.RLock() // otherwise a new process could inherit the open file, and running it would fail
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	e, err := envoybin.Find(func(string) string { return path }, false)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newOffline(t *testing.T, docs string) *offline.Offline {
	t.Helper()
	o, faults := offline.Read([]offline.Text{{Name: "a.yaml", Data: []byte(docs)}})
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestEnvoyValidatesStaticConfig(t *testing.T) {
	seen := t.TempDir()
	e := fakeEnvoy(t, `[ "$1 $2 $3 $4 $5" = "--mode validate --log-level warning -c" ] || exit 9
cp "$6" `+seen+`/$$.json
ls -l "$6" >`+seen+`/mode
echo "configuration '$6' OK"
`)
	v, err := newOffline(t, verified).Verify(t.Context(), offline.VerifyOptions{Envoy: e})
	if err != nil || len(v.Findings)+len(v.Notes) > 0 || v.Proxies != 2 || e.Runs() != 2 {
		t.Fatalf("%v, %d runs: %+v", err, e.Runs(), v)
	}
	mode, _ := os.ReadFile(seen + "/mode")
	if !strings.HasPrefix(string(mode), "-rw------- ") {
		t.Errorf("other users can read the config: %s", mode)
	}
	files, _ := filepath.Glob(seen + "/*.json")
	if len(files) != 2 {
		t.Fatalf("%d configs", len(files))
	}
	var all string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all += strings.NewReplacer(" ", "", "\n", "").Replace(string(b))
	}
	for _, want := range []string{`"staticResources":{`, `"routeConfig":{`, `"validateClusters":false`,
		`"loadAssignment":{"clusterName":"backend"`, `"portValue":9000`,
		`"path":"/dev/null"`, `"re2.max_program_size.error_level":4294967295`, `"secrets":[{`, `"trustedCa":{"inlineBytes":`,
		`"name":"nearside-xds"`} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in %s", want, all)
		}
	}
	for _, not := range []string{
		`"ads":`, `"rds":`, `"edsClusterConfig"`, `"type":"EDS"`, "sdsConfig\"", "/var/log/mesh",
	} {
		if strings.Contains(all, not) {
			t.Errorf("%s is in %s", not, all)
		}
	}
}

func TestEnvoyRejectionIsFinding(t *testing.T) {
	e := fakeEnvoy(t, `if grep -q 192.0.2.1 "$6" && grep -q '"late"' "$6"; then
echo "[2025-01-01 00:00:00.000][1][warning][main] [source/server/server.cc:1] cluster backend is odd"
echo "[2025-01-01 00:00:00.000][1][critical][main] [source/server/config_validation/server.cc:66] error initializing configuration '$6': Error adding listener named 'inbound:192.0.2.1:8080':" >&2
echo "  no such thing" >&2
exit 1
fi
`)
	patch := `
---
type: MeshProxyPatch
mesh: default
name: late
spec:
  targetRef: {kind: Mesh}
  default: {appendModifications: [{listener: {operation: Patch, match: {name: "inbound:192.0.2.1:8080"}, value: "statPrefix: late"}}]}
`
	v, err := newOffline(t, verified+patch).Verify(t.Context(), offline.VerifyOptions{Envoy: e})
	if err != nil || len(v.Faults) != 1 {
		t.Fatalf("%v: %+v", err, v)
	}
	want := resource.Fault{File: "a.yaml", Document: 6, Resource: "MeshProxyPatch/default/late", Field: v.Faults[0].Field,
		Reason: "Listener inbound:192.0.2.1:8080: Error adding listener named 'inbound:192.0.2.1:8080': no such thing " +
			"(said by Envoy), on default/web"}
	if v.Faults[0] != want || !strings.HasPrefix(want.Field, "spec.default.appendModifications[0]") {
		t.Errorf("got %+v\nwant %+v", v.Faults[0], want)
	}
	if f := v.Findings[0]; f.By != "envoy" || f.Severity != "reject" || f.Rule != 0 {
		t.Errorf("%+v", f)
	}
}

func TestEnvoyFails(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"hangs", "sleep 1000 & wait", "did not finish within 50ms"},
		{"dies", "kill -9 $$", "failed: signal: killed"},
	} {
		e := fakeEnvoy(t, c.script)
		e.Timeout = time.Minute
		if c.name == "hangs" {
			e.Timeout = 50 * time.Millisecond
		}
		v, err := newOffline(t, verified).Verify(t.Context(), offline.VerifyOptions{Envoy: e})
		if err != nil || len(v.Faults) > 0 || len(v.Notes) != 2 || !strings.Contains(v.Notes[0], c.want) {
			t.Errorf("%s: %v %+v", c.name, err, v)
		}
	}
	// The caller's context has ended.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := newOffline(t, verified).Verify(ctx, offline.VerifyOptions{Envoy: fakeEnvoy(t, "exit 0")}); err == nil {
		t.Errorf("a result although the context has ended: %+v", v)
	}
}

func TestEnvoyRunLimit(t *testing.T) {
	e := fakeEnvoy(t, "exit 0")
	e.Most = 1
	v, err := newOffline(t, verified).Verify(t.Context(), offline.VerifyOptions{Envoy: e})
	if err != nil || e.Runs() != 1 || len(v.Notes) != 1 ||
		!strings.Contains(v.Notes[0], "the limit of configs (1) is reached") {
		t.Errorf("%d runs, %v: %+v", e.Runs(), err, v)
	}
}

func TestFindEnvoy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	none := func(string) string { return "" }
	if e, err := envoybin.Find(none, false); e != nil || err != nil {
		t.Errorf("ENVOY_BIN is not set: %v %v", e, err)
	}
	if _, err := envoybin.Find(none, true); err == nil || !strings.Contains(err.Error(), "set ENVOY_BIN") {
		t.Errorf("no Envoy on the PATH: %v", err)
	}
	if _, err := envoybin.Find(func(string) string { return "/nowhere/envoy" }, false); err == nil {
		t.Error("a missing executable is found")
	}
}

// TestRealEnvoy validates a config with the Envoy of this machine, if there is one.
func TestRealEnvoy(t *testing.T) {
	e, err := envoybin.Find(os.Getenv, true)
	if err != nil {
		t.Skip("no Envoy on this machine: ", err)
	}
	v, err := newOffline(t, verified).Verify(t.Context(), offline.VerifyOptions{Envoy: e})
	if err != nil || len(v.Findings)+len(v.Notes) > 0 {
		t.Errorf("%v: %+v", err, v)
	}
}

func TestOfflineVerify(t *testing.T) {
	// A mesh that is missing in the files, and no mesh at all.
	v, err := newOffline(t, strings.ReplaceAll(verified, "type: Mesh\nname: default", "type: Mesh\nname: other")).
		Verify(t.Context(), offline.VerifyOptions{})
	if err != nil || v.Proxies != 0 || !slices.Equal(v.Notes,
		[]string{`mesh "default" is not among the resources, so none of its dataplanes was checked`}) {
		t.Errorf("%v: %+v", err, v)
	}
	// A finding that several documents cause together names all of them.
	cluster := `
---
type: MeshProxyPatch
mesh: default
name: NAME
spec:
  targetRef: {kind: MeshService, name: web}
  default: {appendModifications: [{listener: {operation: Add, value: "{name: NAME, address: {socketAddress: {address: 127.0.0.1, portValue: 19000}}, filterChains: [{filters: [{name: envoy.filters.network.tcp_proxy, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, statPrefix: x, cluster: backend}}]}]}"}}]}
`
	v, err = newOffline(t, verified+strings.ReplaceAll(cluster, "NAME", "one")+strings.ReplaceAll(cluster, "NAME", "two")).
		Verify(t.Context(), offline.VerifyOptions{})
	if err != nil || len(v.Faults) != 1 {
		t.Fatalf("%v: %+v", err, v)
	}
	f := v.Faults[0]
	if f.Resource != "MeshProxyPatch/default/one" || f.Document != 6 || !strings.Contains(f.Reason,
		"together with MeshProxyPatch/default/two spec.default.appendModifications[0].listener (a.yaml, document 7)") {
		t.Errorf("%+v", f)
	}
	var second *offline.Verified
	if second, err = newOffline(t, verified+strings.ReplaceAll(cluster, "NAME", "one")+strings.ReplaceAll(cluster,
		"NAME", "two")).Verify(t.Context(), offline.VerifyOptions{}); err != nil || second.Faults[0] != f {
		t.Errorf("%v: different result: %+v", err, second)
	}
}

// TestEnvoyValidatesShownConfig checks that a config in the form of the API gets a generated
// certificate for its hidden keys.
func TestEnvoyValidatesShownConfig(t *testing.T) {
	c, _, err := newOffline(t, verified).Config("", "default", "web", render.ConfigOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := filepath.Join(t.TempDir(), "seen")
	e := fakeEnvoy(t, `cp "$6" `+seen+`; echo "cluster backend: not today"; exit 1`)
	found, err := e.TryConfig(t.Context(), "default", "web", c)
	if err != nil || len(found) != 1 || found[0].Resource != "backend" ||
		!slices.Equal(found[0].Proxies, []string{"default/web"}) {
		t.Fatalf("%v: %+v", err, found)
	}
	b, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(b); strings.Contains(text, "redacted") || !strings.Contains(text, "trustedCa") ||
		!strings.Contains(text, "privateKey") {
		t.Errorf("the config is %s", text)
	}
	c.XDS["x"] = map[string]json.RawMessage{"y": json.RawMessage("{}")}
	if _, err := e.TryConfig(t.Context(), "default", "web", c); err == nil {
		t.Error("an unknown type is accepted")
	}
}
