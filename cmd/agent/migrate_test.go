package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMigrationGuide runs the commands of docs/migration.md against an agent without resources, and
// compares the output with the guide, except for ages and users. UPDATE_GOLDEN=1 updates the guide.
func TestMigrationGuide(t *testing.T) {
	const top, guide = "../..", "../../docs/migration.md"
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "guide") // a short path, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.CopyFS(filepath.Join(dir, "examples/migration"),
		os.DirFS(filepath.Join(top, "examples/migration"))); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(top, "examples/quickstart/agent.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "examples/quickstart/resources"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "examples/quickstart/agent.yaml"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	r := tour{t: t, dir: dir}
	r.start()
	runs := 0
	changed := blocks.ReplaceAllStringFunc(string(text), func(block string) string {
		var out strings.Builder
		for _, piece := range strings.Split("\n"+strings.TrimPrefix(strings.TrimSuffix(block, "```"), "```console\n"),
			"\n$ ")[1:] {
			line, want, _ := strings.Cut(piece, "\n")
			b, err := r.command(line).CombinedOutput()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			got := strings.TrimSuffix(string(b), "\n")
			if diff := cmp.Diff(lasting(strings.TrimSuffix(want, "\n")), lasting(got)); diff != "" &&
				os.Getenv("UPDATE_GOLDEN") == "" {
				t.Errorf("$ %s (-guide +now):\n%s", line, diff)
			}
			out.WriteString("$ " + line + "\n")
			if got != "" {
				out.WriteString(got + "\n")
			}
			runs++
		}
		return "```console\n" + out.String() + "```"
	})
	if runs < 20 {
		t.Errorf("only %d commands were found in %s", runs, guide)
	}
	if os.Getenv("UPDATE_GOLDEN") != "" && changed != string(text) {
		if err := os.WriteFile(guide, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// lasting replaces values that depend on the time and user of the run.
func lasting(s string) string {
	s = regexp.MustCompile(`uid=\d+ \([^)]*\)`).ReplaceAllString(s, "uid=…")
	return regexp.MustCompile(`(api) +(\d+[smhd])+ +`).ReplaceAllString(s, "$1 … ")
}
