package token_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/token"
)

// agentUser is a user that need not exist.
const agentUser = 12345

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can work for another user")
	}
}

func chown(t *testing.T, path string, uid int) {
	t.Helper()
	needRoot(t)
	must(t, os.Lchown(path, uid, uid))
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	must(t, syscall.Mkfifo(path, 0o600))
}

// TestRootForAnotherUser checks that files that root creates for an agent of another user belong to
// that user and are readable by the agent.
func TestRootForAnotherUser(t *testing.T) {
	needRoot(t)
	state, err := os.MkdirTemp("", "token")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(state) })
	must(t, os.Chown(state, agentUser, agentUser))
	dir := filepath.Join(state, token.Dir)
	k := token.Open(dir, nil, time.Now)
	text := create(t, k, web(), time.Hour)
	must(t, k.Revoke("0", time.Now().Add(time.Hour)))
	_, err = k.Rotate()
	must(t, err)
	must(t, filepath.Walk(state, func(path string, st fs.FileInfo, err error) error {
		if err == nil && st.Sys().(*syscall.Stat_t).Uid != agentUser {
			t.Errorf("%s belongs to %d", path, st.Sys().(*syscall.Stat_t).Uid)
		}
		return err
	}))
	if out, err := as(t, agentUser, dir, text); err != nil || out != "valid" {
		t.Errorf("the agent's user: %s, %v", out, err)
	}
	if out, err := as(t, agentUser+1, dir, text); err != nil || out != "permission" {
		t.Errorf("another user: %s, %v", out, err)
	}

	// The agent's user must not be able to redirect root's writes.
	must(t, os.Rename(dir, dir+"2"))
	victim := t.TempDir()
	must(t, os.Symlink(victim, dir))
	if _, err := k.Create(web(), time.Hour); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link in the place of the directory: %v", err)
	}
	must(t, os.Remove(dir))
	must(t, os.Rename(dir+"2", dir))
	list, err := k.List()
	must(t, err)
	for _, name := range []string{"revoked", list[0].ID + ".pem"} {
		must(t, os.Remove(filepath.Join(dir, name)))
		must(t, os.Symlink(filepath.Join(victim, name), filepath.Join(dir, name)))
		must(t, os.Symlink(filepath.Join(victim, name), filepath.Join(dir, "."+name)))
	}
	_ = k.Revoke("1", time.Now().Add(time.Hour))
	_, _ = k.Rotate()
	if entries, err := os.ReadDir(victim); err != nil || len(entries) > 0 {
		t.Errorf("root wrote %v through links", entries)
	}
}

// as verifies a token in a process of another user and returns the output.
func as(t *testing.T, uid uint32, dir, text string) (string, error) {
	t.Helper()
	// /proc/self/exe works even if the other user cannot access the executable's directory.
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestOtherUser$", "-test.count=1")
	cmd.Env = []string{"TOKEN_DIR=" + dir, "TOKEN=" + text}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.Output()
	said, _, _ := strings.Cut(string(out), "\n")
	return said, err
}

// TestOtherUser runs in the process of another user.
func TestOtherUser(t *testing.T) {
	dir := os.Getenv("TOKEN_DIR")
	if dir == "" {
		t.Skip("started by TestRootForAnotherUser")
	}
	k := token.Open(dir, nil, time.Now)
	_, err := k.Verify(os.Getenv("TOKEN"), token.AudienceXDS)
	switch {
	case err == nil:
		os.Stdout.WriteString("valid\n")
	case errors.Is(k.Err(), fs.ErrPermission):
		os.Stdout.WriteString("permission\n")
	default:
		os.Stdout.WriteString(err.Error() + "\n")
	}
}
