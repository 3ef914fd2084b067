package statetest_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/statedir"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestReadOnlyDisk starts agents on a disk that is read-only: the Envoy keeps its config, and what
// suspends the agent does so there too.
func TestReadOnlyDisk(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ item, fault, outcome string }{
		{statedir.Database, "", statedir.Warns}, {statedir.Database, statedir.Missing, statedir.Suspends},
		{statedir.Database, statedir.Truncated, statedir.Suspends}, {statedir.NodeKey, statedir.Missing, statedir.Suspends},
		{"identity/MESH/ca-BACKEND.pem", statedir.Missing, statedir.Warns},
		{"dns-views.json", statedir.Truncated, statedir.Warns}, {statedir.Inventory, statedir.Missing, statedir.Works},
	} {
		t.Run(c.item+"/"+c.fault, func(t *testing.T) {
			t.Parallel()
			dir := agenttest.ShortDir(t)
			state := filepath.Join(dir, "state")
			agenttest.Do(t, os.Mkdir(state, 0o700))
			if err := syscall.Mount("tmpfs", state, "tmpfs", 0, "size=16m,mode=0700"); err != nil {
				t.Skipf("a tmpfs cannot be mounted (root is needed): %v", err)
			}
			t.Cleanup(func() { agenttest.Do(t, syscall.Unmount(state, syscall.MNT_DETACH)) })
			w.copyTo(t, dir)
			path := w.pathOf(dir, &statedir.Item{Name: c.item})
			spoil(t, c.item, c.fault, path)
			agenttest.Do(t, syscall.Mount("", state, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
			before := tree(t, dir)
			r := start(t, dir)
			err := w.check(t, r, path, c.outcome)
			_, problems := r.status(t)
			if err != nil {
				t.Errorf("it does not hold that it %s: %v\nproblems:\n%s", c.outcome, err, problems)
			}
			if tree(t, dir) != before {
				t.Error("the state has changed")
			}
		})
	}
}
