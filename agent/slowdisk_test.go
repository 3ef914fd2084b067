package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/agenttest"
)

// TestDeliveryWhileDiskStalls has the disk stall altogether, with a write over the API that waits for it: a saved file and
// the Dataplane of an Envoy are delivered all the same, and the write is seen when it is on disk.
func TestDeliveryWhileDiskStalls(t *testing.T) {
	dir := agenttest.ShortDir(t)
	file := filepath.Join(dir, "resources", "web.yaml")
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	agenttest.Write(t, file, agenttest.WebFile("a"))
	var stalled atomic.Bool
	waits, open := make(chan struct{}, 1), make(chan struct{})
	r := agenttest.Up(t, dir, agent.Deps{Sync: func() error {
		if stalled.Load() {
			select {
			case waits <- struct{}{}:
			default:
			}
			<-open
		}
		return nil
	}})
	s, versions := r.Ask(&core.Node{Id: "default.web"}, nil), map[string]string{}
	if got := agenttest.Next(t, s, versions); got != "a localhost:80" {
		t.Fatalf("first clusters: %q", got)
	}

	stalled.Store(true)
	written := make(chan error, 1)
	go func() {
		_, err := r.Api().Apply(t.Context(), []byte(agenttest.Meshes("other")), false)
		written <- err
	}()
	<-waits
	agenttest.Write(t, file, agenttest.WebFile("a", "b"))
	if got := agenttest.Next(t, s, versions); got != "b" {
		t.Errorf("after the file was saved: %q", got)
	}
	own := agenttest.Metadata(t, agenttest.DataplaneText("default", "own", "10.0.0.7"))
	if got := agenttest.Next(t, r.Ask(&core.Node{Id: "default.own", Metadata: own}, nil), map[string]string{}); got != "localhost:80" {
		t.Errorf("clusters of an Envoy that brings its Dataplane: %q", got)
	}
	st, err := r.Api().Status(t.Context())
	if err != nil || st.Store.Pending == 0 || !st.Ready {
		t.Errorf("status: %+v %v", st.Store, err)
	}
	if got := agenttest.Held(r.Store()); strings.Contains(got, "other") {
		t.Errorf("a write that is not on disk is seen: %s", got)
	}
	select {
	case err := <-written:
		t.Errorf("the write is acknowledged: %v", err)
	default:
	}
	stalled.Store(false)
	close(open)
	agenttest.Do(t, <-written)
	r.Want("default@web.yaml other@api")
	agenttest.Do(t, r.Stop())
}
