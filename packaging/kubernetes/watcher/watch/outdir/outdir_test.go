package outdir_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/outdir"
)

func open(t *testing.T, path string) *outdir.Dir {
	t.Helper()
	d, err := outdir.Open(path)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, d *outdir.Dir, name, text string) bool {
	t.Helper()
	changed, err := d.Put(name, []byte(text))
	must(t, err)
	return changed
}

// TestPut checks that only different content is written, also after a restart.
func TestPut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "pods")
	d := open(t, path)
	if !put(t, d, "x.yaml", "a: 1") || put(t, d, "x.yaml", "a: 1") || !put(t, d, "x.yaml", "a: 2\n") {
		t.Error("a file is written once for each content")
	}
	text, err := os.ReadFile(filepath.Join(path, "x.yaml"))
	must(t, err)
	if !strings.HasPrefix(string(text), "a: 2\n# Written by nearside-kubernetes") {
		t.Errorf("%s", text)
	}
	st, err := os.Stat(filepath.Join(path, "x.yaml"))
	must(t, err)
	if st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", st.Mode())
	}
	if put(t, open(t, path), "x.yaml", "a: 2\n") {
		t.Error("a restart writes an unchanged file")
	}
	entries, err := os.ReadDir(path)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("%v", entries)
	}
}

// TestForeign checks that files of others are neither changed nor deleted.
func TestForeign(t *testing.T) {
	path := t.TempDir()
	must(t, os.WriteFile(filepath.Join(path, "mine.yaml"), []byte("a: 1\n"), 0o600))
	must(t, os.Symlink("/etc/passwd", filepath.Join(path, "link.yaml")))
	must(t, os.Mkdir(filepath.Join(path, "dir.yaml"), 0o700))
	d := open(t, path)
	for _, name := range []string{"mine.yaml", "link.yaml", "dir.yaml"} {
		if _, err := d.Put(name, []byte("b: 2")); err == nil || !strings.Contains(err.Error(), "not a file of the watcher") {
			t.Errorf("%s: %v", name, err)
		}
		if gone, err := d.Remove(name); gone || err != nil {
			t.Errorf("%s: %v %v", name, gone, err)
		}
	}
	if len(d.Names()) != 0 {
		t.Errorf("%v", d.Names())
	}
}

// TestVerify checks that changes of others, a replaced directory, and the remains of an interrupted
// run are found.
func TestVerify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	d := open(t, path)
	put(t, d, "x.yaml", "a: 1")
	put(t, d, "y.yaml", "a: 1")
	text, err := os.ReadFile(filepath.Join(path, "x.yaml"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(path, "x.yaml"), append([]byte("b: 2\n"), text...), 0o600))
	must(t, os.WriteFile(filepath.Join(path, "y.yaml"), nil, 0o600)) // as after a loss of power
	must(t, os.WriteFile(filepath.Join(path, "../.new/pods.z.yaml"), []byte("part"), 0o600))
	must(t, d.Verify())
	if !put(t, d, "x.yaml", "a: 1") || !put(t, d, "y.yaml", "a: 1") {
		t.Error("changed files are not written again")
	}
	if _, err := os.Stat(filepath.Join(path, "../.new/pods.z.yaml")); err == nil {
		t.Error("the temporary file is still there")
	}
	must(t, os.Rename(path, path+".old"))
	must(t, d.Verify())
	if !put(t, d, "x.yaml", "a: 1") {
		t.Error("the file is missing in the new directory")
	}
	_, err = os.Stat(filepath.Join(path, "x.yaml"))
	must(t, err)
}

// TestName checks that file names are unique and short enough.
func TestName(t *testing.T) {
	long := strings.Repeat("a", 250)
	names := []string{outdir.Name("shop", "web"), outdir.Name("shop", "web.0"), outdir.Name("shop", long),
		outdir.Name("shop", long+"b")}
	for _, n := range names {
		if len(n) > 240 {
			t.Errorf("%d characters: %s", len(n), n)
		}
	}
	if slices.Sort(names); len(slices.Compact(names)) != 4 {
		t.Errorf("%v", names)
	}
	if names[0] == "" || outdir.Name("shop", "web") != "shop.web.yaml" {
		t.Errorf("%v", names)
	}
}

// TestLimit checks that a file has a maximum size.
func TestLimit(t *testing.T) {
	d := open(t, t.TempDir())
	if _, err := d.Put("x.yaml", make([]byte, 5<<20)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}
