package directory_test

import (
	"os"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestCatchUp checks that a client that wrote, emptied, or deleted a file sees the result, and that
// CatchUp does not wait without changes.
func TestCatchUp(t *testing.T) {
	withUnwatched(t, func(t *testing.T, u *unwatched) {
		caught := func(within time.Duration, want string) {
			t.Helper()
			begun := time.Now()
			u.source.CatchUp(t.Context())
			if elapsed := time.Since(begun); elapsed > within {
				t.Errorf("it took %s", elapsed)
			}
			u.holds(want)
		}
		caught(0, "a@a.yaml b@a.yaml z@z.yaml")
		agenttest.Write(t, u.path("a.yaml"), agenttest.Meshes("a", "b", "c"))
		caught(time.Second, "a@a.yaml b@a.yaml c@a.yaml z@z.yaml")
		agenttest.Write(t, u.path("n.yaml"), agenttest.Meshes("n"))
		caught(time.Second, "a@a.yaml b@a.yaml c@a.yaml n@n.yaml z@z.yaml")
		agenttest.Do(t, os.Remove(u.path("z.yaml")))
		caught(time.Second, "a@a.yaml b@a.yaml c@a.yaml n@n.yaml")
		agenttest.Write(t, u.path("n.yaml"), "# nothing\n")
		caught(2*time.Second, "a@a.yaml b@a.yaml c@a.yaml")
		agenttest.Write(t, u.path("a.yaml"), "{{")
		caught(time.Second, "a@a.yaml b@a.yaml c@a.yaml")
		caught(0, "a@a.yaml b@a.yaml c@a.yaml")
	})
}
