package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// otherUser is a local user without permissions on the agent.
const otherUser = 64201

// holdLock locks a file that it can only read, prints whether it succeeded, and holds the lock
// until its input ends.
func holdLock() {
	f, err := os.Open(os.Args[1])
	if err == nil {
		defer f.Close() // not earlier: closing the file would release the lock
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	fmt.Println(err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// attack starts holdLock as another user and returns its output.
func attack(t *testing.T, as func(*exec.Cmd), path string) string {
	t.Helper()
	c := exec.Command("holdlock", path)
	as(c)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = c.Wait() })
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(said)
}

// TestOtherUserCannotHoldTheLocks checks that a user who may not stop the agent cannot prevent its
// start, because no other user can open its lock files.
func TestOtherUserCannotHoldTheLocks(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	as := asUser(t, dir, otherUser)
	for _, d := range []string{"run", "state"} { // directories of an operator, readable for everyone
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, dir)
	d.end(syscall.SIGTERM)
	for _, lock := range []string{"run/nearside.pid", "state/nearside.lock"} {
		if got := attack(t, as, filepath.Join(dir, lock)); !strings.Contains(got, "permission denied") {
			t.Errorf("another user takes the lock %s: %s", lock, got)
		}
	}
	start(t, dir)
}

// TestLockTakenByOtherUserBefore checks that the agent starts if another user locked the file while
// it was still open to all, as earlier versions created it. The lock of another agent must prevent
// the start.
func TestLockTakenByOtherUserBefore(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	as := asUser(t, dir, otherUser)
	for _, lock := range []string{"run/nearside.pid", "state/nearside.lock"} {
		path := filepath.Join(dir, lock)
		write(t, path, "")
		if got := attack(t, as, path); got != "<nil>" {
			t.Fatal(got)
		}
	}
	d := start(t, dir)
	d.says("nearside.pid", "nearside.lock", fmt.Sprintf("uid %d", otherUser))
	for _, lock := range []string{"run/nearside.pid", "state/nearside.lock"} {
		path := filepath.Join(dir, lock)
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v %v, want mode 0600", lock, st.Mode(), err)
		}
		if got := attack(t, as, path); !strings.Contains(got, "permission denied") {
			t.Errorf("another user takes the new lock %s: %s", lock, got)
		}
	}
	for _, set := range [][]string{nil, {"paths.state=" + dir + "/other"}} {
		if code, _, errs := runWith(runArgs(dir, set...)); code != command.ExitFailed ||
			!strings.Contains(errs, fmt.Sprintf("(pid %d)", d.cmd.Process.Pid)) {
			t.Errorf("a second agent: exit code %d, %s", code, errs)
		}
	}
	if left, _ := filepath.Glob(dir + "/*/*.new*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestDirectoriesOfOthers checks that the agent refuses directories that another user can change,
// because that user could replace sockets, locks, and keys.
func TestDirectoriesOfOthers(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	_ = asUser(t, dir, otherUser)
	mkdir := func(path string, mode os.FileMode, uid int) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chown(path, uid, uid), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	mkdir("good", 0o755, 0)
	mkdir("his", 0o755, otherUser)
	mkdir("his/mine", 0o755, 0)
	mkdir("open", 0o777, 0)
	mkdir("sticky", 0o777|os.ModeSticky, 0)
	mkdir("sticky/his", 0o755, otherUser)
	mkdir("sticky/mine", 0o700, 0)
	link := filepath.Join(dir, "sticky/link")
	if err := errors.Join(os.Symlink(filepath.Join(dir, "good"), link), os.Lchown(link, otherUser, otherUser),
		os.Symlink("../good", filepath.Join(dir, "good/self"))); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"his", "his/mine", "his/new", "open", "open/new/er", "sticky/his", "sticky/his/new", "sticky/link", "sticky/link/new",
	} {
		for _, key := range []string{"paths.run", "paths.state", "xds.socket.path"} {
			path := filepath.Join(dir, bad)
			set := key + "=" + path
			if key == "xds.socket.path" {
				set += "/x.sock"
			}
			d := launch(t, dir, nil, set)
			d.says("error: "+key+": "+dir, "set "+key)
			<-d.ended
		}
	}
	for _, good := range []string{"sticky/mine", "good/self/new", "sticky/new"} {
		start(t, dir, "paths.run="+filepath.Join(dir, good), "api.socket.path="+dir+"/run/nearside.sock",
			"paths.state="+filepath.Join(dir, good, "state")).end(syscall.SIGTERM)
	}
}

// TestSpecialFilesAsSocketOrLock checks that the agent does not follow, open, or change a file that
// is not a socket or lock.
func TestSpecialFilesAsSocketOrLock(t *testing.T) {
	t.Parallel()
	for what, put := range map[string]func(path, victim string) error{
		"symlink":   func(path, victim string) error { return os.Symlink(victim, path) },
		"dangling":  func(path, victim string) error { return os.Symlink(victim+".none", path) },
		"fifo":      func(path, _ string) error { return syscall.Mkfifo(path, 0o666) },
		"directory": func(path, _ string) error { return os.Mkdir(path, 0o777) },
		"device":    func(path, _ string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|3) },
	} {
		for _, name := range []string{"run/nearside.pid", "run/nearside.sock", "run/xds.sock"} {
			dir := quickTemp(t)
			victim := filepath.Join(dir, "victim")
			write(t, victim, "as it was")
			path := filepath.Join(dir, name)
			if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), put(path, victim)); errors.Is(err, syscall.EPERM) {
				continue // a device, without root
			} else if err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			d := launch(t, dir, nil)
			d.says("error: ", path, "remove it")
			<-d.ended
			if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() {
				t.Errorf("%s as %s: it is %v now, it was %v (%v)", what, name, after.Mode(), before.Mode(), err)
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != "as it was" {
				t.Errorf("%s as %s: what it leads to has %q now (%v)", what, name, b, err)
			}
			if _, err := os.Lstat(victim + ".none"); err == nil {
				t.Errorf("%s as %s: what it leads to was made", what, name)
			}
		}
	}
}

// TestLeftFilesAreReplaced checks that unused files of another user are replaced: a socket, and a
// lock with a second hard link, which the agent would otherwise write to.
func TestLeftFilesAreReplaced(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	_ = asUser(t, dir, otherUser)
	write(t, dir+"/victim", "as it was")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/stale", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(l.Close(), os.Mkdir(dir+"/run", 0o755), os.Link(dir+"/victim", dir+"/run/nearside.pid"),
		os.Rename(dir+"/stale", dir+"/run/xds.sock"), os.Lchown(dir+"/run/xds.sock", otherUser, otherUser)); err != nil {
		t.Fatal(err)
	}
	d := start(t, dir)
	d.says("nearside.pid", "it has another hard link")
	if b, err := os.ReadFile(dir + "/victim"); err != nil || string(b) != "as it was" {
		t.Errorf("the file under the other name has %q now (%v)", b, err)
	}
	if st, err := os.Stat(dir + "/run/xds.sock"); err != nil || st.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		t.Errorf("the socket: %+v %v", st, err)
	}
}

// TestModes checks that, regardless of the umask, only the agent's user can access the files in its
// directories, except for the sockets.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, umask := range []string{"000", "022"} {
		dir := quickTemp(t)
		write(t, dir+"/resources/web.yaml", webDoc)
		d := launch(t, dir, func(c *exec.Cmd) {
			c.Args = append([]string{"sh", "-c", "umask " + umask + `; exec "$0" "$@"`, c.Path}, c.Args[1:]...)
			c.Path = "/bin/sh"
		}, "api.socket.mode=0600", "xds.socket.mode=0660")
		d.says("the agent is ready")
		for path, want := range map[string]os.FileMode{
			"run": os.ModeDir | 0o750, "run/nearside.pid": 0o600, "run/nearside.sock": os.ModeSocket | 0o600,
			"run/xds.sock": os.ModeSocket | 0o660,
			"state":        os.ModeDir | 0o700, "state/nearside.lock": 0o600, "state/nearside.db": 0o600,
		} {
			if st, err := os.Stat(filepath.Join(dir, path)); err != nil {
				t.Error(err)
			} else if st.Mode() != want {
				t.Errorf("umask %s: %s has mode %v, want %v", umask, path, st.Mode(), want)
			}
		}
		if err := filepath.WalkDir(dir+"/state", func(path string, e os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			st, err := e.Info()
			if err == nil && st.Mode()&0o077 != 0 {
				t.Errorf("umask %s: %s has mode %v", umask, path, st.Mode())
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

// TestAdminSocketsCannotBeTaken checks that no user can create the admin socket of another user's
// Envoy. Sockets created while that was possible must be replaced by the agent and refused by
// bootstrap.
func TestAdminSocketsCannotBeTaken(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	as := asUser(t, dir, otherUser)
	envoy := filepath.Join(dir, "run/envoy")
	mine := filepath.Join(envoy, "0")
	if err := errors.Join(os.MkdirAll(mine, 0o755), os.Chmod(envoy, 0o733|os.ModeSticky),
		os.Chown(mine, otherUser, otherUser)); err != nil {
		t.Fatal(err)
	}
	bootstrap := []string{"bootstrap", "--name", "web", "--user", "0", "--xds-socket", dir + "/run/xds.sock"}
	if code, _, errs := runWith(bootstrap); code != command.ExitFailed ||
		!strings.Contains(errs, "other users may write to "+envoy) {
		t.Errorf("a directory that all may write to: exit code %d, %s", code, errs)
	}
	if err := os.Chmod(envoy, 0o711); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runWith(bootstrap); code != command.ExitFailed ||
		!strings.Contains(errs, mine+" does not belong only to the user 0") {
		t.Errorf("a directory of another user: exit code %d, %s", code, errs)
	}
	d := start(t, dir)
	d.says("the path of an admin socket directory is not a directory of its user")
	if code, out, errs := runWith(bootstrap); code != command.ExitOK || !strings.Contains(out, mine+"/default.web.sock") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	for _, path := range []string{envoy + "/default.web.sock", envoy + "/1234", mine + "/default.web.sock"} {
		c := exec.Command("/bin/mkdir", path)
		program := c.Path
		as(c)
		c.Path = program
		if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("another user makes %s: %v %s", path, err, out)
		}
	}
	// The agent creates no directory for this user.
	none := []string{"bootstrap", "--name", "web", "--user", fmt.Sprint(otherUser), "--xds-socket", dir + "/run/xds.sock"}
	if code, _, errs := runWith(none); code != command.ExitUsage || !strings.Contains(errs, "give --admin-socket") {
		t.Errorf("no directory: exit code %d, %s", code, errs)
	}
}
