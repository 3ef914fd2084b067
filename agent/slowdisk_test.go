package agent_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestDeliveryWhileDiskStalls stalls the disk while an API write waits for it. A saved file and the
// Dataplane of an Envoy must still be delivered. The write must become visible once it is on disk.
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
	output := make(chan error, 1)
	go func() {
		_, err := r.Api().Apply(t.Context(), []byte(agenttest.Meshes("other")), false)
		output <- err
	}()
	<-waits
	agenttest.Write(t, file, agenttest.WebFile("a", "b"))
	if got := agenttest.Next(t, s, versions); got != "b" {
		t.Errorf("after the file was saved: %q", got)
	}
	// The Dataplane belongs to an existing service, because the virtual address of a new one must
	// be on disk before it is sent to proxies.
	own := agenttest.Metadata(t, strings.Replace(agenttest.DataplaneText("default", "own", "10.0.0.7"),
		`"kuma.io/service": "own"`, `"kuma.io/service": "web"`, 1))
	if got := agenttest.Next(t, r.Ask(&core.Node{Id: "default.own", Metadata: own}, nil),
		map[string]string{}); got != "localhost:80" {
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
	case err := <-output:
		t.Errorf("the write is acknowledged: %v", err)
	default:
	}
	stalled.Store(false)
	close(open)
	agenttest.Do(t, <-output)
	r.Want("default@web.yaml other@api")
	agenttest.Do(t, r.Stop())
}

// TestNewServiceWhileDiskStalls stalls the disk while a service without a virtual address is added.
// Everything else must be delivered meanwhile. No proxy may receive the address before it is on
// disk, and all must receive it after that.
func TestNewServiceWhileDiskStalls(t *testing.T) {
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
	agenttest.Next(t, s, versions)

	stalled.Store(true)
	fresh := agenttest.DataplaneText("default", "fresh", "10.0.0.8")
	agenttest.Write(t, filepath.Join(dir, "resources", "fresh.yaml"), fresh)
	<-waits
	for _, add := range []string{"b", "c"} {
		agenttest.Write(t, file, agenttest.WebFile("a", "b", add))
		if got := agenttest.Next(t, s, versions); got != add {
			t.Errorf("while the disk stalls: %q, want %s", got, add)
		}
	}
	address := func() (out string) {
		for _, x := range r.Last().Meshes["default"].View.Services() {
			if x.ID.Name == "fresh" && x.VIP.IsValid() {
				out = x.VIP.String()
			}
		}
		return out
	}
	if got := address(); got != "" {
		t.Errorf("the new service has %s, which is not on disk", got)
	}
	agenttest.Eventually(t, "the status says why it has none", func() bool {
		st, err := r.Api().Status(t.Context())
		agenttest.Do(t, err)
		return slices.ContainsFunc(st.Problems, func(p api.Problem) bool {
			return strings.Contains(p.Reason, `"fresh"`) && strings.Contains(p.Reason, "the state disk")
		})
	})
	stalled.Store(false)
	close(open)
	for late := time.Now().Add(2 * time.Minute); address() == ""; <-time.After(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the new service has no address though the disk takes it")
		}
	}
	if got := r.Store().Addresses(); !strings.Contains(strings.Join(slices.Collect(maps.Values(got)), " "), address()) {
		t.Errorf("stored are %q", got)
	}
	agenttest.Do(t, r.Stop())
}
