package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// agentWith serves the API of an agent in the state that change makes, and returns its socket.
func agentWith(t *testing.T, change func(*httpapi.Options)) string {
	t.Helper()
	st, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	reg := kinds.Registry()
	rs, faults := reg.Decode("", []byte("{type: Mesh, name: default}\n---\n"+
		"{type: Dataplane, mesh: default, name: web, networking: {address: 192.0.2.1, inbound: [{port: 80, "+
		"tags: {kuma.io/service: web}}]}}\n"))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if _, err := st.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
		Ops: []store.Op{{Put: rs[0]}, {Put: rs[1]}}}); err != nil {
		t.Fatal(err)
	}
	roles, err := access.NewRoles(access.RoleOptions{AgentUID: uint32(os.Getuid()), GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	o := httpapi.Options{Access: httpapi.Access{Roles: roles},
		Info:     api.Info{Product: "nearside", Version: "v1", Node: "n", Zone: "z", PID: 7},
		Registry: reg, Store: st, Last: func() *status.Result { return nil },
		NewMesh: func(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
			return generate.NewMesh(set, name, mesh.Options{}, kinds.Plugins(), policy.Options{}, prev)
		}}
	change(&o)
	srv, err := httpapi.New(o)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return socket
}

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

// output runs a command line against a socket.
func output(t *testing.T, socket string, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if got := Main(append(args, "--socket", socket), strings.NewReader(""), &out, &errs, nil); got != code {
		t.Errorf("%v: exit code %d, want %d: %s", args, got, code, errs.String())
	}
	return out.String(), errs.String()
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in\n%s", p, text)
		}
	}
}

func TestProxyScreens(t *testing.T) {
	at := time.Now().Add(-3 * time.Hour)
	socket := agentWith(t, func(o *httpapi.Options) {
		o.Proxies = func() []api.ProxyStatus {
			return []api.ProxyStatus{{Mesh: "default", Name: "web", NodeID: "default.web", Flavor: node.FlavorEnvoy,
				UserAgent: "envoy",
				Version:   "1.31.0", Peer: access.Peer{Local: true, UID: 101, PID: 9}, ConnectedAt: at, Streams: 1,
				State: api.StateServing,
				Types: []api.TypeStatus{
					{TypeURL: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Resources: 4, SentVersion: "aa",
						AckedVersion: "aa"},
					{TypeURL: "type.googleapis.com/envoy.config.listener.v3.Listener", Resources: 2, SentVersion: "bb",
						AckedVersion: "cc",
						NACK:         &api.NACK{Version: "bb", Reason: "bad filter"},
						Held:         []api.HeldResource{{Name: "inbound:x", Reason: "bad filter"}}},
				}}}
		}
	})
	out, _ := output(t, socket, command.ExitOK, "inspect", "dataplanes", "-o", "wide")
	contains(t, out, "default   web    rejected   envoy 1.31.0   3h", "default.web", "6 ", "bad filter")
	out, _ = output(t, socket, command.ExitOK, "inspect", "dataplane", "web", "--type=status")
	contains(t, out, "default/web: rejected: bad filter", "node default.web: envoy 1.31.0", "3h ago, 1 stream",
		"Cluster    4           aa     aa      -", "Listener   2           bb     cc      bb: bad filter",
		"held: inbound:x: bad filter")
	out, _ = output(t, socket, command.ExitOK, "get", "dp")
	contains(t, out, "rejected")
	_, errs := output(t, socket, command.ExitFailed, "inspect", "dataplane", "web")
	contains(t, errs, "the first configs are being computed")
}

func TestStatusScreen(t *testing.T) {
	socket := agentWith(t, func(o *httpapi.Options) {
		o.Registry = withInert(t, "Dataplane")
		o.Ready = func() []api.Check {
			return []api.Check{{Name: "state", OK: true, Reason: "well"}, {Name: "xds", Reason: "socket is gone"}}
		}
		o.Files = func() []api.FileStatus {
			return []api.FileStatus{{Path: "/r/a.yaml",
				Faults:    []resource.Fault{{File: "/r/a.yaml", Line: 3, Reason: "no good"}},
				Conflicts: map[string]string{"Mesh/m": "api"}},
				{Path: "/r/b.yaml", Missing: api.MissingVanished, KeptUntil: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.Local)},
				{Path: "/r/c.yaml", Missing: api.MissingEmpty}}
		}
		o.Last = func() *status.Result {
			l := &status.Result{Revision: 2, At: time.Now(), Took: 5 * time.Millisecond}
			for range 12 {
				l.Problems = append(l.Problems,
					api.Problem{Resource: "Dataplane/default/web", Severity: api.SeverityWarning, Reason: "half"})
			}
			return l
		}
	})
	out, _ := output(t, socket, command.ExitNo, "status")
	contains(t, out, "nearside v1 on n (zone z), pid 7", "NOT READY", "ok   state: well", "FAIL xds: socket is gone",
		"2 at revision 2 (2 api)",
		"from revision 2 in 5.0 ms", "1 disconnected", "FAIL /r/a.yaml:3: no good", "Mesh/m is managed by api",
		"WARN /r/b.yaml: vanished, its resources are retained until 03:04:05.006", "WARN /r/c.yaml: empty, "+
			"its resources are retained until the directory can be read", "problems   14 (2 above)", "… and 2 more",
		"stored, but this version does not act on them: 1 Dataplane")
	out, _ = output(t, socket, command.ExitNo, "status", "-o", "yaml")
	contains(t, out, "ready: false")
	out, errs := output(t, socket, command.ExitFailed, "healthcheck")
	contains(t, errs, "not ready: xds: socket is gone")
	if out != "" || strings.Contains(errs, "well") {
		t.Errorf("healthcheck says %q and %q", out, errs)
	}
	if out, errs := output(t, socket, command.ExitOK, "healthcheck", "--live"); out != "" || errs != "" {
		t.Errorf("an agent that is live and not ready: healthcheck --live says %q and %q", out, errs)
	}
}
