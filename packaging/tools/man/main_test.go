package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPages writes the pages of this checkout. Every command has a page with all sections, all
// references exist, and man accepts the pages if it is installed.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	binary := os.Getenv("NEARSIDE_BIN")
	if binary == "" {
		binary = filepath.Join(dir, "nearside")
		build := exec.Command("go", "build", "-o", binary, "./cmd/agent")
		build.Dir = "../../.."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := (&manual{binary: binary, dir: dir}).write("node agent for Envoy meshes"); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 50 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	shown, noMan := 0, exec.Command("man", "--version").Run()
	for _, file := range pages {
		name := strings.TrimSuffix(filepath.Base(file), ".1")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range []string{
			"NAME", "DESCRIPTION", "USAGE", "EXAMPLES", "FLAGS", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO",
		} {
			_, body, ok := strings.Cut(string(text), "\n.SH "+section+"\n")
			body, _, _ = strings.Cut(body, "\n.SH ")
			if !ok || strings.TrimSpace(strings.NewReplacer(".nf", "", ".fi", "").Replace(body)) == "" {
				t.Errorf("%s has no %s", name, section)
			}
			if section == "EXIT STATUS" && (!strings.Contains(body, "\n0   ") || !strings.Contains(body, "\n64   ")) {
				t.Errorf("%s does not say what the exit codes 0 and 64 mean: %s", name, body)
			}
		}
		for line := range strings.Lines(string(text)) {
			if other, ok := strings.CutPrefix(line, ".BR "); ok {
				other = strings.ReplaceAll(strings.Fields(other)[0], `\-`, "-")
				if _, err := os.Stat(filepath.Join(dir, other+".1")); err != nil {
					t.Errorf("%s names %s, which has no page", name, other)
				}
			}
		}
		if noMan == nil && shown < 3 {
			shown++
			out, err := exec.Command("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", file).CombinedOutput()
			if err != nil || strings.Contains(string(out), "warning:") {
				t.Errorf("man does not show %s: %v: %.500s", name, err, out)
			}
		}
	}
}
