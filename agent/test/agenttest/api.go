package agenttest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// API serves the API of an agent with the options set by change, and returns its socket.
func API(t testing.TB, change func(*httpapi.Options)) string {
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
	if _, err := st.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI},
		Ops: []store.Op{{Put: rs[0]}, {Put: rs[1]}}}); err != nil {
		t.Fatal(err)
	}
	roles, err := access.NewRoles(access.RoleOptions{AgentUID: uint32(os.Getuid()), GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	o := httpapi.Options{Access: httpapi.Access{Roles: roles},
		Info: api.Info{Product: "nearside", Version: "v1", Node: "n", Zone: "z", PID: 7}}
	o.Registry, o.Store, o.Last = reg, st, func() *status.Result { return nil }
	o.NewMesh = func(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
		return generate.NewMesh(set, name, mesh.Options{}, kinds.Plugins(), policy.Options{}, prev)
	}
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

// Contains reports an error for each of parts that text does not contain.
func Contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in\n%s", p, text)
		}
	}
}
