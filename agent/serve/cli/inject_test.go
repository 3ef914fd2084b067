package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const injectedPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: p\n    image: p\n"

// TestInject checks files, folders, exit codes, and that a fault leaves no output.
func TestInject(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("in/a.yaml", injectedPod, 0o600)
	put("in/sub/b.yaml", "kind: ConfigMap\ndata: {a: b}", 0o644)
	broken := put("broken.yaml", "a: 1\n b: 2\n", 0o644)
	inject := func(code int, stdin string, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		if got := run(append([]string{"inject"}, args...), strings.NewReader(stdin), &out, &errs, nil); got != code {
			t.Fatalf("inject %v: exit code %d, want %d: %s", args, got, code, errs.String())
		}
		return out.String(), errs.String()
	}
	contains := func(text, want string) {
		t.Helper()
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}

	stdout, stderr := inject(0, injectedPod, "-f", "-", "-m", "prod")
	contains(stdout, "prod.$(POD_NAME).$(POD_NAMESPACE)")
	contains(stderr, "<stdin>:1: Pod/p: injected\ninjected 1 of 1 object with pods; 0 other objects unchanged\n")
	if _, stderr = inject(0, injectedPod, "-f", "-", "-q"); stderr != "" {
		t.Errorf("-q prints %q", stderr)
	}

	stdout, _ = inject(0, "", "-R", "-f", filepath.Join(dir, "in"))
	contains(stdout, "\n---\nkind: ConfigMap\ndata: {a: b}")

	stdout, stderr = inject(65, "", "-f", filepath.Join(dir, "in"), "-f", broken, "--out", filepath.Join(dir, "none"))
	contains(stderr, broken+":2: not valid YAML")
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil || stdout != "" {
		t.Errorf("a fault leaves output: %q", stdout)
	}

	inject(0, "", "-R", "-f", filepath.Join(dir, "in"), "--out", filepath.Join(dir, "out")+"/")
	same, err := os.ReadFile(filepath.Join(dir, "out/sub/b.yaml"))
	if err != nil || string(same) != "kind: ConfigMap\ndata: {a: b}" {
		t.Errorf("another object: %q, %v", same, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "out/a.yaml")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode: %v, %v", st, err)
	}
	_, stderr = inject(0, "", "-f", filepath.Join(dir, "out/a.yaml"))
	contains(stderr, "Pod/p: already injected")

	_, stderr = inject(64, injectedPod, "-f", "-", "--out", dir+"/")
	contains(stderr, "standard input has no file name")
	_, stderr = inject(64, "", "-f", filepath.Join(dir, "in/a.yaml"), "-f", filepath.Join(dir, "out/a.yaml"), "--out",
		dir+"/")
	contains(stderr, "would be written to the same file")
	_, stderr = inject(64, "kind: ConfigMap\n", "-f", "-", "--identity", "uid") // also without pods
	contains(stderr, `--identity "uid" is invalid; use one of csi, hostpath`)
}
