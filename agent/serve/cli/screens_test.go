package cli

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// withInert is the registry of all kinds, with one of them as if nothing acted on it.
func withInert(t *testing.T, kind string) *resource.Registry {
	t.Helper()
	ds := kinds.All()
	for i := range ds {
		ds[i].Inert = ds[i].Inert || ds[i].Kind == kind
	}
	reg, err := resource.NewRegistry(ds...)
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

func TestProxyScreens(t *testing.T) {
	at := time.Now().Add(-3 * time.Hour)
	socket := agenttest.API(t, func(o *httpapi.Options) {
		o.Proxies = func() []api.ProxyStatus {
			return []api.ProxyStatus{{Mesh: "default", Name: "web", NodeID: "default.web", Flavor: node.FlavorEnvoy,
				UserAgent: "envoy",
				Version:   "1.31.0", Peer: access.Peer{Local: true, UID: 101, PID: 9}, ConnectedAt: at, Streams: 1,
				State: api.StateServing,
				Types: []api.TypeStatus{
					{TypeURL: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Resources: 4, SentVersion: "aa",
						AckedVersion: "aa", SentAt: at, AckedAt: at.Add(time.Minute), Responses: 3},
					{TypeURL: "type.googleapis.com/envoy.config.listener.v3.Listener", Resources: 2, SentVersion: "bb",
						AckedVersion: "cc",
						NACK:         &api.NACK{Version: "bb", Reason: "bad filter"},
						Held:         []api.HeldResource{{Name: "inbound:x", Reason: "bad filter"}}},
				}}}
		}
	})
	out, _ := output(t, socket, command.ExitOK, "inspect", "dataplanes", "-o", "wide")
	agenttest.Contains(t, out, "default   web    rejected   envoy 1.31.0   3h", "default.web", "6 ", "bad filter")
	out, _ = output(t, socket, command.ExitOK, "inspect", "dataplane", "web", "--type=status")
	agenttest.Contains(t, out, "default/web: rejected: bad filter", "node default.web: envoy 1.31.0", "3h ago, 1 stream",
		"Cluster    4           aa     aa      2h             3         -",
		"Listener   2           bb     cc      -              0         bb: bad filter",
		"held: inbound:x: bad filter")
	out, _ = output(t, socket, command.ExitOK, "get", "dp")
	agenttest.Contains(t, out, "rejected")
	_, errs := output(t, socket, command.ExitFailed, "inspect", "dataplane", "web")
	agenttest.Contains(t, errs, "the first configs are being computed")
}

func TestStatusScreen(t *testing.T) {
	socket := agenttest.API(t, func(o *httpapi.Options) {
		o.Registry = withInert(t, "Dataplane")
		o.Ready = func() []api.Check {
			return []api.Check{{Name: "state", OK: true, Reason: "well"}, {Name: "xds", Reason: "socket is gone"}}
		}
		o.Files = func() []api.FileStatus {
			return []api.FileStatus{{Path: "/r/a.yaml",
				Faults:    []resource.Fault{{File: "/r/a.yaml", Line: 3, Reason: "no good"}},
				Conflicts: map[string]string{"Mesh/m": "api"}},
				{Path: "/r/b.yaml", Missing: api.MissingVanished,
					KeptUntil: time.Date(2026, 1, 2, 4, 4, 5, 6e6, time.FixedZone("", 3600))},
				{Path: "/r/c.yaml", Missing: api.MissingEmpty}}
		}
		o.Last = func() *status.Result {
			l := &status.Result{Revision: 2, At: time.Now(), Duration: 5 * time.Millisecond}
			for i := range 20 {
				l.Problems = append(l.Problems, api.Problem{Resource: "Dataplane/default/web", Severity: api.SeverityWarning,
					Reason: "half " + strconv.Itoa(i)})
			}
			return l
		}
	})
	out, _ := output(t, socket, command.ExitNo, "status")
	agenttest.Contains(t, out, "nearside v1 on n (zone z), pid 7",
		"NOT READY", "ok   state: well", "FAIL xds: socket is gone",
		"2 at revision 2 (2 api)",
		"from revision 2 in 5.0 ms", "1 disconnected",
		"FAIL file-fault: /r/a.yaml:3: no good\n       run: nearside validate -f /r/a.yaml",
		"FAIL file-conflict: Mesh/m: /r/a.yaml: it is managed by api",
		"WARN file-missing: /r/b.yaml: vanished, its resources are retained until 2026-01-02T03:04:05Z",
		"WARN file-missing: /r/c.yaml: empty, its resources are retained until the directory can be read",
		"WARN resource: Dataplane/default/web: half", "problems   26", "… and 6 more",
		"stored, but this version ignores them: 1 Dataplane")
	out, _ = output(t, socket, command.ExitNo, "status", "-o", "yaml")
	agenttest.Contains(t, out, "ready: false")
	out, errs := output(t, socket, command.ExitFailed, "healthcheck")
	agenttest.Contains(t, errs, "not ready: xds: socket is gone")
	if out != "" || strings.Contains(errs, "well") {
		t.Errorf("healthcheck says %q and %q", out, errs)
	}
	if out, errs := output(t, socket, command.ExitOK, "healthcheck", "--live"); out != "" || errs != "" {
		t.Errorf("an agent that is live and not ready: healthcheck --live says %q and %q", out, errs)
	}
}
