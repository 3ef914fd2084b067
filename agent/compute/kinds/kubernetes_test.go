package kinds_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
)

// TestResourcesOfWatcher checks that the agent accepts what the watcher of Kubernetes writes: the
// golden files of its module.
func TestResourcesOfWatcher(t *testing.T) {
	files, err := filepath.Glob("../../../packaging/kubernetes/watcher/watch/convert/testdata/*.out.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	total := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		rs, faults := kinds.Registry().Decode(f, text)
		for _, fault := range faults {
			t.Error(fault)
		}
		total += len(rs)
	}
	if total < 20 {
		t.Errorf("%d resources", total)
	}
}
