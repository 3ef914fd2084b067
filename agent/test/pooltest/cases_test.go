package pooltest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestDeletedStaysDeleted checks that a resource that was deleted while an agent was down, or after
// its state file was copied, is gone on that node.
func TestDeletedStaysDeleted(t *testing.T) {
	t.Parallel()
	all := startPool(t, 2)
	a, b := all[0], all[1]
	a.apply(meshText + "---\n" + timeoutText("deleted", "1", "20s") + "---\n" + timeoutText("other", "2", "20s"))
	b.has("meshtimeouts", "deleted", "1")
	b.has("meshtimeouts", "other", "2")
	agree(all)
	b.stop()
	file := filepath.Join(b.state(), "nearside.db")
	earlier, err := os.ReadFile(file)
	agenttest.Do(t, err)
	b.start()
	a.delete("meshtimeouts", "default", "deleted")
	b.has("meshtimeouts", "deleted", "")
	agree(all)
	b.kill()
	agenttest.Do(t, os.WriteFile(file, earlier, 0o600))
	b.start()
	b.has("meshtimeouts", "deleted", "")
	a.delete("meshtimeouts", "default", "other")
	agree(all)
	if got := agree(all); len(got) != 1 {
		t.Errorf("in the end there are %v", got)
	}
}

// TestRolledBackNode checks that a node receives its own writes again after its state was replaced
// by an earlier copy, or was lost except for its identity, and that "wait --scope mesh" waits for
// that.
func TestRolledBackNode(t *testing.T) {
	t.Parallel()
	for what, damage := range map[string]func(t *testing.T, state, earlier string){
		"an earlier copy":   func(t *testing.T, state, earlier string) { copyState(t, earlier, state) },
		"only the identity": func(t *testing.T, state, _ string) { loseState(t, state) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			all := startPool(t, 2)
			a, b := all[0], all[1]
			a.apply(meshText + "---\n" + timeoutText("changed", "1", "20s") + "---\n" + timeoutText("deleted", "2", "20s"))
			b.has("meshtimeouts", "deleted", "2")
			b.apply(agenttest.DataplaneText("default", "web", "127.0.0.2")) // which the policies select
			a.stop()
			earlier := filepath.Join(a.dir, "earlier")
			copyState(t, a.state(), earlier)
			a.start()
			a.apply(timeoutText("changed", "3", "30s") + "---\n" + timeoutText("created", "4", "30s"))
			a.delete("meshtimeouts", "default", "deleted")
			b.has("meshtimeouts", "created", "4")
			b.has("meshtimeouts", "changed", "3")
			b.has("meshtimeouts", "deleted", "")

			a.kill()
			damage(t, a.state(), earlier)
			a.begin()
			for _, name := range []string{"created", "changed"} {
				last := ""
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("the last answer of wait --scope mesh: %s", last)
					}
				})
				b.await("wait --scope mesh ends", func() bool {
					got, err := b.api.Wait(t.Context(), api.Wait{Type: "MeshTimeout", Mesh: "default", Name: name,
						Scope: api.ScopeMesh, Timeout: "1s"})
					last = fmt.Sprintf("%+v %v", got, err)
					return err == nil && got.State == api.StateNoEffect && got.Nodes == 2 // web calls no service
				})
				got, err := a.entries(t.Context())
				want, _ := b.entries(t.Context())
				if key := "meshtimeouts/" + name; err != nil || got[key].write != want[key].write {
					t.Errorf("wait --scope mesh says that both nodes have %s, but %s has %+v %v", name, a.name, got[key], err)
				}
			}
			a.has("meshtimeouts", "changed", "3")
			a.has("meshtimeouts", "created", "4")
			a.has("meshtimeouts", "deleted", "")
			agree(all)
		})
	}
}

// TestDeadAtStart checks that a starting agent does not serve the dataplanes of a node that died
// before as healthy.
func TestDeadAtStart(t *testing.T) {
	t.Parallel()
	all := startPool(t, 3)
	a, dead := all[0], all[2]
	a.apply(meshText)
	dead.has("meshes", "default", "0")
	dead.apply(agenttest.DataplaneText("default", "lost", "127.0.0.2"))
	mark := func() string {
		item, err := a.api.Get(t.Context(), "dataplanes", "default", "lost")
		if err != nil {
			return err.Error()
		}
		_, after, _ := strings.Cut(string(item.Resource), `"nearside.io/liveness":"`)
		value, _, _ := strings.Cut(after, `"`)
		return value
	}
	a.await("the dataplane arrives", func() bool { return mark() == "" })
	dead.kill()
	a.await("the dataplane is dead", func() bool { return mark() == "dead" })
	for range 2 {
		a.stop()
		a.begin()
		a.await("the dataplane can be read", func() bool {
			_, err := a.api.Get(t.Context(), "dataplanes", "default", "lost")
			return err == nil
		})
		if got := mark(); got != "dead" {
			t.Errorf("right after the start the dataplane of the dead node is marked %q", got)
		}
		a.ready()
	}
	dead.start()
	a.await("the dataplane is alive", func() bool { return mark() == "" })
}
