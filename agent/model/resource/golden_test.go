package resource_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestDecodeCases decodes the input of each case in testdata/decode and compares the accepted
// resources and all faults. UPDATE_GOLDEN=1 updates the cases.
func TestDecodeCases(t *testing.T) {
	files, err := filepath.Glob("testdata/decode/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	r := registry(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input := ar.Files[0].Data
			res, faults := r.Decode("input", input)
			var b strings.Builder
			for _, x := range res {
				fmt.Fprintf(&b, "ok %s\n", x.Key)
			}
			for _, f := range faults {
				fmt.Fprintln(&b, f)
			}
			if os.Getenv("UPDATE_GOLDEN") != "" {
				ar.Files = []txtar.File{ar.Files[0], {Name: "want", Data: []byte(b.String())}}
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(ar.Files) < 2 {
				t.Fatal("the case has no want; run with UPDATE_GOLDEN=1")
			}
			if d := cmp.Diff(string(ar.Files[1].Data), b.String()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
