package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// mountTmpfs mounts a separate file system, which can be full or read-only.
func mountTmpfs(t *testing.T, dir, options string) (remount func(flags uintptr, options string)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return func(flags uintptr, options string) {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, options); err != nil {
			t.Fatal(err)
		}
	}
}

// stateCheck returns the readiness check of the state.
func (d *daemon) stateCheck() api.Check {
	d.t.Helper()
	h, err := d.api().Ready(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, c := range h.Checks {
		if c.Name == "state" {
			return c
		}
	}
	d.t.Fatalf("no check of the state: %+v", h)
	return api.Check{}
}

// TestFullStateDisk checks a full state disk. Files and proxies must continue to work, API writes
// must be refused with the remedy, and all reports must show the problem. Writes must succeed again
// when space is available.
func TestFullStateDisk(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	remount := mountTmpfs(t, dir+"/state", "size=1m")
	write(t, dir+"/resources/web.yaml", webDoc)
	d := start(t, dir)
	if code, _, errs := d.nearside(meshDoc("kept", 1), "apply", "-f", "-"); code != command.ExitOK {
		t.Fatal(errs)
	}
	ballast, err := os.Create(dir + "/state/ballast")
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = ballast.Write(make([]byte, 4096))
	}
	ballast.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}

	// The file grows only occasionally, so some writes still fit into it.
	refused, output := -1, map[string]bool{"kept": true}
	for i := 0; i < 500 && refused < 0; i++ {
		name := fmt.Sprintf("m-%d", i)
		code, _, errs := d.nearside(bigDoc(name), "apply", "-f", "-")
		switch code {
		case command.ExitOK:
			output[name] = true
		case command.ExitFailed:
			refused = i
			agenttest.Contains(t, errs, "no space left on device", "free space for "+dir+"/state/nearside.db")
		default:
			t.Fatalf("exit code %d: %s", code, errs)
		}
	}
	if refused < 0 {
		t.Fatal("all writes found room on a full disk")
	}
	d.says("cannot write the state to disk")
	// File resources still take effect, in memory. A smaller change, such as a virtual address, may
	// still fit on the disk, and then nothing is missing there before this one.
	write(t, dir+"/resources/more.yaml", bigDoc("from-file"))
	agenttest.Eventually(t, "the file's mesh is there", func() bool {
		code, _, _ := d.nearside("", "get", "mesh", "from-file")
		return code == command.ExitOK
	})
	agenttest.Eventually(t, "the file's mesh cannot be stored", func() bool { return d.stateCheck().Degraded })
	if c := d.stateCheck(); !c.OK || !c.Degraded || !strings.Contains(c.Reason, "in memory") ||
		!strings.Contains(c.Reason, "no space") {
		t.Errorf("readiness: %+v", c)
	}
	code, out, _ := d.nearside("", "status")
	if code != command.ExitOK {
		t.Errorf("status: exit code %d", code)
	}
	agenttest.Contains(t, out, "FAIL state: ", "no space left on device")
	if strings.Contains(out, "WARN space: ") {
		t.Errorf("status names the full disk twice: %s", out)
	}
	put, err := unixHTTP(d.socket()).Post("http://x/v1/apply", "application/json", strings.NewReader(bigDoc("again")))
	if err != nil {
		t.Fatal(err)
	}
	put.Body.Close()
	if put.StatusCode != http.StatusInsufficientStorage {
		t.Errorf("a write over the API: %s", put.Status)
	}
	remount(0, "size=16m")
	if code, _, errs := d.nearside(bigDoc("again"), "apply", "-f", "-"); code != command.ExitOK {
		t.Errorf("a write when there is room: %s", errs)
	}
	d.says("the state is written to disk again")
	if c := d.stateCheck(); c.Degraded {
		t.Errorf("readiness: %+v", c)
	}
	output["again"] = true
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	d = start(t, dir)
	for name := range output {
		if code, _, errs := d.nearside("", "get", "mesh", name); code != command.ExitOK {
			t.Errorf("after a restart: %s", errs)
		}
	}
}

// bigDoc returns a mesh of about ten kilobytes.
func bigDoc(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "type: Mesh\nname: %s\nlabels:\n", name)
	for i := range 120 {
		fmt.Fprintf(&b, "  label-%d: %s\n", i, strings.Repeat("x", 60))
	}
	return b.String()
}

// TestReadOnlyStateDisk starts an agent on a read-only disk without pending writes. The agent must
// notice when the disk is writable again.
func TestReadOnlyStateDisk(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	remount := mountTmpfs(t, dir+"/state", "size=1m")
	remount(syscall.MS_RDONLY, "size=1m")
	d := start(t, dir)
	d.says("paths.state cannot be written", "read-only file system")
	if c := d.stateCheck(); !c.OK || !c.Degraded {
		t.Errorf("readiness: %+v", c)
	}
	code, _, errs := d.nearside(meshDoc("m", 1), "apply", "-f", "-")
	if code != command.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	agenttest.Contains(t, errs, "read-only file system", "make it writable")
	remount(0, "size=1m")
	agenttest.Eventually(t, "the state is well again", func() bool { return !d.stateCheck().Degraded })
	if code, _, errs := d.nearside(meshDoc("m", 1), "apply", "-f", "-"); code != command.ExitOK {
		t.Error(errs)
	}
}

// TestDamagedStateFile checks that an invalid state file is set aside, and that the resources of
// the directory are available immediately.
func TestDamagedStateFile(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc)
	write(t, dir+"/state/nearside.db", strings.Repeat("no database\n", 9000))
	if err := os.Chmod(dir+"/state/nearside.db", 0o600); err != nil {
		t.Fatal(err)
	}
	d := start(t, dir)
	d.says("the state file is damaged", "renamed="+dir+"/state/nearside.db.damaged-")
	if code, _, errs := d.nearside("", "get", "dataplane", "web"); code != command.ExitOK {
		t.Error(errs)
	}
	_, out, _ := d.nearside("", "status")
	agenttest.Contains(t, out, "WARN state-file: ", "set aside as "+dir+"/state/nearside.db.damaged-", "ok   state: ")
	if aside, _ := filepath.Glob(dir + "/state/nearside.db.damaged-*"); len(aside) != 1 {
		t.Errorf("set aside: %v", aside)
	}
}

// TestDamagedDeletion checks that a damaged deletion record does not restore the deleted resource
// after any number of restarts, and that the agent reports the remedy.
func TestDamagedDeletion(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	d := start(t, dir)
	d.must("type: Mesh\nname: default\n---\ntype: MeshTrafficPermission\nmesh: default\nname: guard\nspec:\n  from:\n"+
		"  - targetRef: {kind: Mesh}\n    default: {action: Allow}\n", "apply", "-f", "-")
	d.must("", "delete", "meshtrafficpermission", "guard")
	restart := func(change func([]byte) []byte) {
		t.Helper()
		if code := d.end(syscall.SIGTERM); code != command.ExitOK {
			t.Fatalf("exit code %d", code)
		}
		file := dir + "/state/nearside.db"
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, change(b), 0o600); err != nil {
			t.Fatal(err)
		}
		d = start(t, dir)
	}
	restart(func(b []byte) []byte {
		if !bytes.Contains(b, []byte(`"deleted":true`)) {
			t.Fatal("the deletion is not to be found")
		}
		return bytes.ReplaceAll(b, []byte(`"deleted":true`), []byte(`"deleted":trve`))
	})
	for range 3 {
		code, out, _ := d.nearside("", "status")
		if code == command.ExitOK {
			t.Error("the agent is ready")
		}
		agenttest.Contains(t, out, "FAIL state: 1 resource cannot be read",
			"run nearside delete MeshTrafficPermission guard -m default",
			"FAIL damaged: MeshTrafficPermission/default/guard: it cannot be read from the state file since ",
			"Mesh/default: its proxies keep their config, because MeshTrafficPermission/default/guard cannot be read")
		if code, out, errs := d.nearside("", "get", "meshtrafficpermission", "guard"); code == command.ExitOK ||
			!strings.Contains(errs, "cannot be read") {
			t.Fatalf("get: exit code %d, %s%s", code, out, errs)
		}
		agenttest.Contains(t, d.must("", "history", "meshtrafficpermission", "guard"), "created")
		restart(func(b []byte) []byte { return b })
	}
	d.must("", "delete", "meshtrafficpermission", "guard")
	restart(func(b []byte) []byte { return b })
	agenttest.Contains(t, d.must("", "status"), "ok   state: every change is on disk")
	if _, _, errs := d.nearside("", "get", "meshtrafficpermission", "guard"); !strings.Contains(errs, "does not exist") {
		t.Errorf("after the deletion: %s", errs)
	}
}
