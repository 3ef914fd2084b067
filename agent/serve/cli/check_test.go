package cli

import (
	"os"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func TestCheckTellsWhatIsWrong(t *testing.T) {
	socket := agenttest.API(t, func(o *httpapi.Options) {
		o.Registry = withInert(t, "Dataplane")
		o.Ready = func() []api.Check {
			return []api.Check{{Name: "state", OK: true, Degraded: true, Reason: "the state is kept in memory"},
				{Name: "config", Reason: "no config was made yet"},
				{Name: "resource-files", OK: true, Degraded: true, Reason: "told below"}}
		}
		o.Files = func() []api.FileStatus {
			return []api.FileStatus{{Path: "/r/a.yaml", Missing: api.MissingVanished},
				{Path: "/r/b.yaml", Exposed: "holds a secret and is open"}}
		}
		o.Last = func() *status.Result {
			return &status.Result{At: time.Now().Add(time.Hour), Problems: []api.Problem{
				{Resource: "MeshTimeout/default/t", Severity: api.SeverityError, Reason: "left out"},
				{Resource: "MeshTimeout/default/u", Severity: api.SeverityError, Reason: "left out"},
				{Resource: "Dataplane/default/web", Severity: api.SeverityWarning, Reason: "Listener x is shadowed"}}}
		}
		o.Proxies = func() []api.ProxyStatus {
			return []api.ProxyStatus{
				{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy, State: api.StateServing, Streams: 1,
					Types: []api.TypeStatus{{TypeURL: "x", NACK: &api.NACK{Reason: "bad filter"}}}},
				{Mesh: "default", Name: "lost", Flavor: node.FlavorEnvoy, State: api.StateUnknown, Streams: 1}}
		}
	})
	out, _ := output(t, socket, command.ExitNo, "check")
	agenttest.Contains(t, out,
		"WARN agent: nearside v1 on n responds, but this command is ", "     hint: restart the agent after an upgrade",
		"WARN state: the state is kept in memory\n     run: nearside config show",
		"FAIL config: no config was made yet\n     run: nearside debug pprof",
		"WARN inert: stored, but this version ignores them: 1 Dataplane",
		"WARN file-missing: /r/a.yaml: vanished, its resources are retained until ",
		"WARN file-exposed: /r/b.yaml holds a secret and is open\n     run: ls -l /r/b.yaml",
		"ok   proxies: 1 rejected, 1 unknown",
		"FAIL rejected: Dataplane/default/web: bad filter\n     run: nearside inspect dataplane web -m default",
		"WARN unknown-node: Dataplane/default/lost",
		"FAIL resource: MeshTimeout/default/t: left out\n     run: nearside get MeshTimeout t -m default -o yaml\n"+
			"FAIL resource: MeshTimeout/default/u: left out\n     run: ",
		"WARN resource: Dataplane/default/web: Listener x is shadowed")
	doc, _ := output(t, socket, command.ExitNo, "check", "-o", "json")
	agenttest.Contains(t, doc, `"ok": false`, `"state": "FAIL"`, `"reason": "MeshTimeout/default/u: left out"`)
}

func TestCheckAsksEnvoy(t *testing.T) {
	dir := t.TempDir()
	socket := agenttest.API(t, func(o *httpapi.Options) {
		st := o.Store
		o.Last = func() *status.Result {
			set := st.Snapshot().Set()
			m, err := o.NewMesh(set, "default", nil)
			if err != nil {
				t.Error(err)
			}
			return &status.Result{Revision: st.Snapshot().Revision(), Meshes: map[string]*generate.Mesh{"default": m},
				At: time.Now()}
		}
		o.Proxies = func() []api.ProxyStatus {
			return []api.ProxyStatus{{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy, State: api.StateServing,
				Streams: 1}}
		}
	})
	agenttest.Write(t, dir+"/envoy", "#!/bin/sh\ngrep -q 'inbound:192.0.2.1:80' \"$6\" || exit 0\n"+
		"echo 'listener inbound:192.0.2.1:80: not today' >&2\nexit 1\n")
	if err := os.Chmod(dir+"/envoy", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	out, _ := output(t, socket, command.ExitNo, "check", "--envoy")
	agenttest.Contains(t, out, "FAIL envoy: Listener inbound:192.0.2.1:80: listener inbound:192.0.2.1:80: not today "+
		"(said by Envoy), on default/web\n     hint: ")
	agenttest.Write(t, dir+"/envoy", "#!/bin/sh\nkill -9 $$\n")
	out, _ = output(t, socket, command.ExitOK, "check", "--envoy")
	agenttest.Contains(t, out, "WARN envoy: default/web: ", "failed: signal")
}
