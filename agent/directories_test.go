package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestDirectoriesWithRoles checks an agent with two directories. In the directory with a role, only
// resources that the role may write take effect, and the API reports the others.
func TestDirectoriesWithRoles(t *testing.T) {
	dir := agenttest.ShortDir(t)
	for _, d := range []string{"all", "logs"} {
		agenttest.Do(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	agenttest.Write(t, filepath.Join(dir, "all/mesh.yaml"), agenttest.Meshes("default"))
	logs := filepath.Join(dir, "logs/logs.yaml")
	agenttest.Write(t, logs, agenttest.Meshes("other")+`---
type: MeshAccessLogBackend
mesh: default
name: file
spec: {name: file, type: tcp, conf: {address: "192.0.2.7:5000"}}
`)
	const roles = `api.roles=[{name: meshes, allow: [{kinds: [Mesh], verbs: [create, update]}]}]`
	for role, want := range map[string]struct{ meshes, backends, fault string }{
		"observability": {"default@mesh.yaml", "1", "Mesh/other is refused: the role observability may not create Mesh " +
			"other/other; the roles that allow it: meshes, mesh-operator."},
		"meshes": {"default@mesh.yaml other@logs.yaml", "0", "MeshAccessLogBackend/default/file is refused: the role " +
			"meshes may not create MeshAccessLogBackend default/file; the roles that allow it: mesh-operator, observability."},
	} {
		r := agenttest.Up(t, dir, agent.Deps{}, roles, "resources.dir=[{path: all}, {path: logs, role: "+role+"}]")
		if got := agenttest.Held(r.Store()); got != want.meshes {
			t.Errorf("%s: the store holds %q, want %q", role, got, want.meshes)
		}
		backends := 0
		for _, rec := range r.Store().Snapshot().Records() {
			if rec.Kind == "MeshAccessLogBackend" {
				backends++
			}
		}
		if got := string('0' + rune(backends)); got != want.backends {
			t.Errorf("%s: %s backends, want %s", role, got, want.backends)
		}
		i := slices.IndexFunc(r.Files(), func(f api.FileStatus) bool { return f.Path == logs })
		if i < 0 || len(r.Files()[i].Faults) != 1 || !strings.HasPrefix(r.Files()[i].Faults[0].Reason, want.fault) {
			t.Errorf("%s: files %+v", role, r.Files())
		}
		agenttest.Do(t, r.Stop()) // the other role is active after a restart
	}
}
