package directory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestDirScansOfSingleFiles makes random changes, several files of which have the same resources,
// and compares the result of scans of single files with that of a source that reads all files.
func TestDirScansOfSingleFiles(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	w := watch(t, dir, agenttest.Memory(t), func(o *directory.Options) { o.Files = 8 })
	state := func(s *directory.Source) string {
		var out []string
		for _, f := range s.Files() {
			out = append(out, fmt.Sprintf("%s: %d %q %q %v", filepath.Base(f.Path), f.Resources, f.Conflicts, f.Missing,
				f.Faults))
		}
		return strings.Join(out, "\n")
	}
	agenttest.Write(t, filepath.Join(outside, "target"), agenttest.Meshes("linked"))
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 100 {
		for range 1 + r.IntN(4) {
			name := fmt.Sprintf("f%d.yaml", r.IntN(10))
			path, text := w.path(name), agenttest.Meshes(fmt.Sprintf("m%d", r.IntN(8)), "own-"+name[:2])
			var err error
			switch r.IntN(8) {
			case 0, 1:
				err = os.Remove(path)
			case 2:
				err = os.Rename(path, w.path(fmt.Sprintf("f%d.yaml", r.IntN(10))))
			case 3:
				err = os.Truncate(path, 0)
			case 4:
				if err = os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
					err = os.Symlink(filepath.Join(outside, "target"), path)
				}
			default:
				w.write(name+".tmp", text)
				err = os.Rename(w.path(name+".tmp"), path)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if names, _ := filepath.Glob(w.path("*.yaml")); len(names) > 8 { // the directory counts as unreadable
				agenttest.Do(t, os.Remove(names[r.IntN(len(names))]))
			}
		}
		from := agenttest.Memory(t)
		fresh := directory.New(directory.Options{Dirs: []directory.Dir{{Path: dir}}, Registry: kinds.Registry(), Store: from,
			Files: 8})
		fresh.Scan()
		want := agenttest.Held(from) + "\n" + state(fresh)
		same := func() bool { return agenttest.Held(w.store)+"\n"+state(w.source) == want }
		agenttest.Await(t, fmt.Sprintf("round %d: %s", round, want), w.scanned, same)
	}
}
