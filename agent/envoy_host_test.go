package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// TestLogDirectoryIsMissing checks a policy with an access log that a real Envoy cannot open. The
// agent must withhold the listener and explain the fix, Envoy must reject nothing, and the policy
// must apply automatically once the directory exists.
func TestLogDirectoryIsMissing(t *testing.T) {
	envoytest.Find(t)
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), fmt.Sprintf(
		"{type: Mesh, name: default}\n---\n{type: Dataplane, mesh: default, name: web, networking: {address: 127.0.0.1, "+
			"inbound: [{port: %d, tags: {kuma.io/service: web}}], outbound: [{port: %d, tags: {kuma.io/service: svc-2}}]}}\n",
		freePort(t), freePort(t)))
	startEnvoy(t, r.Agent, "web")
	dir := filepath.Join(t.TempDir(), "logs")
	agenttest.ByAPI(t, r.Store(), accessLog(filepath.Join(dir, "a.log")))
	got := waitFor(t, r, "MeshAccessLog", "logs")
	if got.State != api.StateRejected || len(got.Rejected) == 0 || got.Rejected[0].By != api.HeldByCheck ||
		!strings.Contains(got.Rejected[0].Reason, "the directory "+dir+" does not exist; make it") {
		t.Fatalf("the directory is missing: %+v", got)
	}
	agenttest.Do(t, os.Mkdir(dir, 0o755))
	agenttest.Eventually(t, "the policy is applied", func() bool {
		return waitFor(t, r, "MeshAccessLog", "logs").State == api.StateApplied
	})
	if n := metric(t, r.Agent, "nearside_xds_nacks_total", "listener"); n != 0 {
		t.Errorf("Envoy has rejected %v responses", n)
	}
}
