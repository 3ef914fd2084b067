package inject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
)

// template decodes a pod template.
func template(t testing.TB, text string) (map[string]any, inject.Pod) {
	t.Helper()
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var pod inject.Pod
	if err := json.Unmarshal(data, &pod); err != nil {
		t.Fatal(err)
	}
	tree = nil
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	return tree, pod
}

// applied returns a template with the edits.
func applied(t testing.TB, tree map[string]any, edits inject.Edits) map[string]any {
	t.Helper()
	ops, err := edits.Patch(tree)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	var patch jsonpatch.Patch
	if err := json.Unmarshal(data, &patch); err != nil {
		t.Fatal(err)
	}
	out, err := patch.Apply(tree)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return out.(map[string]any)
}

func asYAML(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPlanGolden compares injected templates with expected ones.
func TestPlanGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/plan/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tree, pod := template(t, string(text))
			pod.Kind = "Deployment"
			var o inject.Options
			if strings.Contains(file, "hostpath") {
				o.Identity, o.Mesh = inject.IdentityHostPath, "prod"
			}
			edits, notes, err := inject.Plan(pod, o)
			if err != nil {
				t.Fatal(err)
			}
			after := applied(t, tree, edits)
			var b strings.Builder
			for _, n := range notes {
				fmt.Fprintf(&b, "# note: %s: %s\n", n.Field, n.Text)
			}
			b.WriteString(asYAML(t, after))
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s", b.String(), want)
			}

			_, injected := template(t, asYAML(t, after))
			injected.Kind = "Deployment"
			edits, notes, err = inject.Plan(injected, o)
			if err != nil || len(edits)+len(notes) > 0 {
				t.Errorf("injected again: %v, %v, %v", edits, notes, err)
			}
			o.EnvoyImage = "other:1"
			edits, notes, err = inject.Plan(injected, o)
			if err != nil || len(edits) > 0 || len(notes) != 1 || !strings.Contains(notes[0].Text, "original manifest") {
				t.Errorf("injected with another image: %v, %v, %v", edits, notes, err)
			}
		})
	}
}
