package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// removeKey implements the script command "remove FILE", which removes the signing key with the ID
// in the file.
func removeKey(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: remove FILE")
	}
	ts.Check(ts.Exec("nearside", "token", "rotate", "--remove", strings.TrimSpace(ts.ReadFile(args[0]))))
}

// TestTokensOfAnotherUser checks that root can create tokens for the agent of another user, that
// this user can use them, and that a third user cannot.
func TestTokensOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	as := asUser(t, dir, 4242)
	stranger := asUser(t, dir, 4243)
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(state, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	run := func(user func(*exec.Cmd), args ...string) (int, string) {
		t.Helper()
		cmd := exec.Command("nearside", append([]string{"token"}, args...)...)
		cmd.Env = []string{"NEARSIDE_PATHS_STATE=" + state}
		if user != nil {
			user(cmd)
		}
		out, _ := cmd.CombinedOutput() // the exit code is checked
		return cmd.ProcessState.ExitCode(), string(out)
	}
	file := filepath.Join(dir, "web.token")
	if code, out := run(nil, "create", "--name", "web", "--write", file); code != command.ExitOK {
		t.Fatalf("root: exit code %d: %s", code, out)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out := run(as, "inspect", file); code != command.ExitOK {
		t.Errorf("the agent's user: exit code %d: %s", code, out)
	}
	if code, out := run(as, "rotate"); code != command.ExitOK {
		t.Errorf("the agent's user: exit code %d: %s", code, out)
	}
	if code, out := run(nil, "revoke", "-f", file); code != command.ExitOK {
		t.Errorf("root: exit code %d: %s", code, out)
	}
	if code, out := run(as, "inspect", file); code != command.ExitNo || !strings.Contains(out, "revoked") {
		t.Errorf("the agent's user, once it is revoked: exit code %d: %s", code, out)
	}
	for _, args := range [][]string{
		{"create", "--name", "web"}, {"inspect", file}, {"keys"}, {"rotate"}, {"rotate", "--remove", "x"}, {"revoke", "0"},
		{"revoke", "-f", file}, {"list-revoked"},
	} {
		if code, out := run(stranger, args...); code != command.ExitPermission ||
			!strings.Contains(out, "hint: run the command as root") {
			t.Errorf("%v by a stranger: exit code %d: %s", args, code, out)
		}
	}
	err := filepath.Walk(state, func(path string, st fs.FileInfo, err error) error {
		if err == nil && (st.Sys().(*syscall.Stat_t).Uid != 4242 || st.Mode().Perm()&0o077 != 0) {
			t.Errorf("%s belongs to %d and has the mode %v", path, st.Sys().(*syscall.Stat_t).Uid, st.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
