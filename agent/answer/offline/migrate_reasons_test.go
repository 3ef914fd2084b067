package offline_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
)

// TestMigrationReasons migrates the cases of legacy kinds and checks that each remaining difference
// has a reason.
func TestMigrationReasons(t *testing.T) {
	for _, kind := range []string{"ratelimit", "retry", "healthcheck", "trace"} {
		var files []string
		for _, pattern := range []string{"migrate/*.txtar", "legacy.txtar", "legacy-http-alone.txtar", "legacy-never.txtar"} {
			list, err := filepath.Glob("../../compute/kinds/" + kind + "/testdata/" + pattern)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, list...)
		}
		if len(files) < 2 {
			t.Errorf("%s has %d cases", kind, len(files))
		}
		for _, file := range files {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts := []offline.Text{{Name: file, Data: a.Files[0].Data}}
			if !bytes.Contains(a.Files[0].Data, []byte("type: Mesh\n")) {
				texts = append(texts, offline.Text{Name: "mesh", Data: []byte("{type: Mesh, name: default}")})
			}
			o, faults := offline.Read(texts)
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			m, err := o.Migrate(offline.MigrateOptions{Mesh: "default"})
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Policies) == 0 {
				t.Errorf("%s: nothing is migrated", file)
			}
			for _, p := range m.Dataplanes {
				for _, c := range slices.Concat(p.Live, p.Deleted) {
					if len(c.Why) == 0 {
						t.Errorf("%s: %s: no reason for %s %s %s", file, p.Name, c.Op, c.Name, c.Field)
					}
				}
			}
		}
	}
}
