package reconcile_test

import (
	"bytes"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestEnvoyWritesItsFile checks that an Envoy that cannot open a FIFO writes the file itself, if
// the backend does not require rotation, and that its listeners then do not count as without a log.
func TestEnvoyWritesItsFile(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, `{type: MeshAccessLog, mesh: default, name: plain, spec: {from: [{targetRef: {kind: Mesh},
  default: {backends: [{type: File, file: {path: /var/log/plain}}]}}]}}`)
	c := new(config.Config)
	c.Paths.Logs, c.AccessLog.Rotation = "/var/log", "always"
	l := &logs{}
	p := agenttest.NewPublisher("default.web")
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p, Logs: l, Paths: logpaths.NewRules(c)})
	r.Pass()
	writes := func() bool {
		for _, x := range p.Of("default.web").Resources[draft.RankListener] {
			if bytes.Contains(x.Body(), []byte("/var/log/plain")) {
				return true
			}
		}
		return false
	}
	if pipes := p.Of("default.web").Pipes; len(pipes) != 1 || !pipes[0].Fallback || writes() {
		t.Fatalf("the agent writes the file: %+v", pipes)
	}
	l.missing = map[string]string{"/var/log/plain": "its Envoy runs on another host"}
	l.writes = map[string]bool{"/var/log/plain": true}
	r.Pass()
	if pipes := p.Of("default.web").Pipes; len(pipes) != 0 || !writes() || len(l.unlogged) > 0 {
		t.Errorf("the Envoy writes the file: %+v, without a log: %v", pipes, l.unlogged)
	}
}
