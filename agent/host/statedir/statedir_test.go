package statedir_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/statedir"
)

func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// used returns a directory with files, after the agent has used it.
func used(t *testing.T, path string, outside ...string) {
	t.Helper()
	do(t, os.MkdirAll(filepath.Join(path, "tokens"), 0o700))
	for _, name := range []string{statedir.Database, statedir.NodeKey, statedir.TrustPin, statedir.Revoked} {
		do(t, os.WriteFile(filepath.Join(path, name), []byte("x"), 0o600))
	}
	d := statedir.Open(path, outside...)
	if f := d.Check(); f != nil {
		t.Fatalf("a directory without an inventory: %v", f)
	}
	do(t, d.Record())
}

// TestLostFiles checks that a file that existed must exist, until its loss is accepted.
func TestLostFiles(t *testing.T) {
	for name, want := range map[string]string{
		statedir.Database: "resources written over the API", statedir.NodeKey: "another member of the pool",
		statedir.TrustPin: "first trust file that it gets", statedir.Revoked: "revoked tokens are valid again",
	} {
		path := filepath.Join(t.TempDir(), "state")
		used(t, path)
		do(t, os.Remove(filepath.Join(path, name)))
		f := statedir.Open(path).Check()
		accept := filepath.Join(path, statedir.AcceptLoss)
		if f == nil || f.Path != filepath.Join(path, name) || !strings.Contains(f.Remedy, want) ||
			!strings.HasSuffix(f.Remedy, "touch "+accept) {
			t.Errorf("%s is missing: %v", name, f)
		}
		do(t, os.WriteFile(accept, nil, 0o600))
		d := statedir.Open(path)
		if f := d.Check(); f != nil || !d.LossAccepted() {
			t.Errorf("%s: after the loss is accepted: %v", name, f)
		}
		do(t, d.Record(), d.Accepted())
		if f := statedir.Open(path).Check(); f != nil {
			t.Errorf("%s: at the next start: %v", name, f)
		}
	}
}

// TestNewDirectory checks that a new node starts without questions, also after a power loss before
// its first start has ended, and with a damaged inventory.
func TestNewDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	check := func(what string) {
		t.Helper()
		if f := statedir.Open(path).Check(); f != nil {
			t.Errorf("%s: %v", what, f)
		}
	}
	check("missing")
	do(t, os.Mkdir(path, 0o700))
	check("empty")
	do(t, os.WriteFile(filepath.Join(path, statedir.NodeKey), []byte("x"), 0o600),
		os.WriteFile(filepath.Join(path, statedir.Database), nil, 0o600))
	check("after an interrupted start")
	do(t, os.WriteFile(filepath.Join(path, statedir.Inventory), []byte("{"), 0o600))
	check("with a damaged inventory")
	if statedir.Open(path).Had(statedir.Database) {
		t.Error("a damaged inventory lists files")
	}
}

// TestReplacedKey checks that an operator can let the agent create another key.
func TestReplacedKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	used(t, path)
	key := filepath.Join(path, statedir.NodeKey)
	do(t, os.Rename(key, key+".former"))
	if f := statedir.Open(path).Check(); f != nil {
		t.Errorf("after the key became the former one: %v", f)
	}
}

// TestUnmountedDisk checks that a state directory whose disk is not mounted is not a new one, and
// that its stamp changes when the disk is mounted.
func TestUnmountedDisk(t *testing.T) {
	base := t.TempDir()
	disk, logs := filepath.Join(base, "disk"), filepath.Join(base, "logs")
	do(t, os.Mkdir(disk, 0o700), os.Mkdir(logs, 0o700))
	mount := func() {
		t.Helper()
		if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
			t.Skipf("a tmpfs cannot be mounted (root is needed): %v", err)
		}
	}
	mount()
	state := filepath.Join(disk, "nearside", "state")
	used(t, state, logs)
	if f := statedir.Open(state, logs).Check(); f != nil {
		t.Fatalf("mounted: %v", f)
	}
	do(t, syscall.Unmount(disk, 0))
	d := statedir.Open(state, logs)
	f, stamp := d.Check(), d.Stamp()
	if f == nil || f.Path != state || !strings.Contains(f.Remedy, "run mount "+disk) {
		t.Errorf("not mounted: %v", f)
	}
	do(t, os.MkdirAll(state, 0o700)) // an earlier release has created it
	if f := statedir.Open(state, logs).Check(); f == nil || !strings.Contains(f.Reason, "not mounted") {
		t.Errorf("not mounted, with an empty directory: %v", f)
	}
	if f := statedir.Open(state+"2", logs).Check(); f != nil {
		t.Errorf("the directory of another agent: %v", f)
	}
	mount()
	defer func() { do(t, syscall.Unmount(disk, 0)) }()
	if d.Stamp() == stamp {
		t.Error("the stamp is the same after the disk was mounted")
	}
}

// TestUnusableDirectory checks directories that cannot be used.
func TestUnusableDirectory(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	do(t, os.WriteFile(file, nil, 0o600))
	if f := statedir.Open(file).Check(); f == nil || !strings.Contains(f.Error(), "is not a directory") {
		t.Errorf("a file: %v", f)
	}
	if f := statedir.Open(filepath.Join(file, "state")).Check(); f != nil {
		t.Errorf("a directory that cannot exist has no state: %v", f)
	}
}

// TestDocument checks that docs/operations.md has the table of all files.
func TestDocument(t *testing.T) {
	b, err := os.ReadFile("../../../docs/operations.md")
	do(t, err)
	var table strings.Builder
	table.WriteString("| file | contains | " + strings.Join(statedir.Faults(), " | ") + " |\n|---|---|" +
		strings.Repeat("---|", len(statedir.Faults())) + "\n")
	for _, x := range statedir.Items() {
		table.WriteString("| `" + x.Name + "` | " + x.Holds + " | " + strings.Join(x.Outcome[:], " | ") + " |\n")
	}
	if !strings.Contains(string(b), table.String()) {
		t.Errorf("docs/operations.md lacks this table:\n%s", table.String())
	}
	for _, x := range statedir.Items() {
		if x.Effect != "" && !strings.Contains(string(b), "- `"+x.Name+"`: "+x.Effect+".\n") {
			t.Errorf("docs/operations.md lacks this line:\n- `%s`: %s.", x.Name, x.Effect)
		}
	}
}
