package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPrepare runs the init container's program: it changes owners without following links, and
// removes only directories that can belong to nearside.
func TestPrepare(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can change owners")
	}
	bin := filepath.Join(t.TempDir(), "prepare")
	run(t, "go", "-C", "../prepare", "build", "-o", bin, ".")
	dir := filepath.Join(t.TempDir(), "of-the-watcher")
	outside := filepath.Join(t.TempDir(), "outside")
	for _, d := range []string{filepath.Join(dir, "pods"), outside} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}

	run(t, bin, "--private", "65531:65532="+dir)
	for path, want := range map[string][3]uint32{
		dir:                        {65531, 65532, 0o750},
		filepath.Join(dir, "pods"): {65531, 65532, 0o755},
		outside:                    {0, 0, 0o755},
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		if got := [3]uint32{st.Uid, st.Gid, uint32(info.Mode().Perm())}; got != want {
			t.Errorf("%s: %v, want %v (uid, gid, mode)", path, got, want)
		}
	}

	for _, args := range [][]string{
		{"--private", "65531=" + dir}, {"--private", "-1:0=" + dir}, {"--private", "65531:65532"},
		{"--remove", "/run"}, {"--remove", "relative/path"}, {"--remove", outside + "/../outside"},
	} {
		if out, err := exec.Command(bin, args...).CombinedOutput(); err == nil {
			t.Errorf("prepare %v succeeds: %s", args, out)
		}
	}
	for range 2 { // the second time there is nothing to remove
		run(t, bin, "--remove", dir)
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("the target of a link was removed: %v", err)
	}
}
