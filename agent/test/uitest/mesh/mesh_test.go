package mesh_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/mesh"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// TestFiles decodes meshes of several sizes and compares two runs.
func TestFiles(t *testing.T) {
	for _, n := range []int{1, 2, 9, 1000} {
		o := mesh.Options{Services: n, MTLS: true}
		text := strings.Join(mesh.Files(o), "")
		if text != strings.Join(mesh.Files(o), "") {
			t.Errorf("%d services: two runs differ", n)
		}
		rs, faults := kinds.Registry().Decode("mesh", []byte(text))
		if len(faults) > 0 {
			t.Fatalf("%d services: %v", n, faults[0])
		}
		dataplanes := 0
		for _, r := range rs {
			if r.Kind == "Dataplane" {
				dataplanes++
			}
		}
		if want := n + (n+1)/2; dataplanes != want {
			t.Errorf("%d services: %d dataplanes, want %d", n, dataplanes, want)
		}
	}
}

// TestConnect serves the proxies of a mesh with a real agent.
func TestConnect(t *testing.T) {
	o := mesh.Options{Services: 30, Proxies: 10, MTLS: true}
	dir := agenttest.Home(t)
	agenttest.Do(t, mesh.Write(filepath.Join(dir, "resources"), o))
	a := agenttest.Up(t, dir, agent.Deps{})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 2*o.Proxies)
	var clients sync.WaitGroup
	clients.Go(func() { mesh.Connect(ctx, a.Addrs().XDS, o, func(err error) { served <- err }) })
	for range o.Proxies {
		agenttest.Do(t, <-served)
	}
	var connected []string
	for _, p := range a.Proxies() {
		if p.Streams > 0 {
			connected = append(connected, p.NodeID)
		}
	}
	if len(connected) != o.Proxies || !slices.Contains(connected, "default."+mesh.Dataplane(9)) {
		t.Errorf("connected: %v", connected)
	}
	cancel()
	clients.Wait()
}
