package asuser_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/asuser"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

const stranger, group = 61021, 61022

// shortDir returns a directory that every user may enter, with a path that fits a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "asuser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	chmod(t, dir, 0o711)
	return dir
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// userOf returns a user without an account. The test is skipped unless it runs as root.
func userOf(t *testing.T, groups ...string) *asuser.User {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	u, err := asuser.Lookup(fmt.Sprint(stranger), groups)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestConnect checks that a connection has the user and groups of the user, and that each reason
// for a failure names the directory or file that is the cause.
func TestConnect(t *testing.T) {
	dir := shortDir(t)
	socket := filepath.Join(dir, "in", "x.sock")
	if err := os.Mkdir(filepath.Dir(socket), 0o711); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, member := userOf(t), userOf(t, fmt.Sprint(group))
	if err := os.Chown(socket, 0, group); err != nil {
		t.Fatal(err)
	}
	chmod(t, socket, 0o660)

	c, p := member.Connect(socket)
	if p != nil {
		t.Fatalf("a member of the group: %+v", p)
	}
	defer c.Close()
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	peer, err := access.PeerOf(other, false)
	if err != nil || peer.UID != stranger || peer.GID != stranger || len(peer.Groups) != 1 || peer.Groups[0] != group {
		t.Errorf("the peer is %+v %v", peer, err)
	}
	if got := os.Geteuid(); got != 0 || unix.Access(dir, unix.W_OK) != nil {
		t.Errorf("the process has the user %d afterwards", got)
	}

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		user       *asuser.User
		setup      func()
		kind       asuser.Kind
		at         string
	}{
		{"not in the group", socket, u, nil, asuser.Denied, socket},
		{"no file", filepath.Join(dir, "in", "y.sock"), member, nil, asuser.Missing, filepath.Join(dir, "in", "y.sock")},
		{"no directory", filepath.Join(dir, "out", "y.sock"), member, nil, asuser.Missing, filepath.Join(dir, "out")},
		{"a file", file, u, nil, asuser.NotSocket, file},
		{"below a file", filepath.Join(file, "x.sock"), u, nil, asuser.NotEntered, file},
		{"closed directory", socket, member, func() { chmod(t, filepath.Dir(socket), 0o700) }, asuser.NotEntered,
			filepath.Dir(socket)},
		{"no listener", socket, member, func() {
			chmod(t, filepath.Dir(socket), 0o711)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
		}, asuser.NoListener, socket},
	} {
		if c.setup != nil {
			c.setup()
		}
		conn, p := c.user.Connect(c.path)
		if conn != nil || p == nil || p.Kind != c.kind || p.Path != c.at {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}

// TestFiles checks the tests of files that a user reads or creates.
func TestFiles(t *testing.T) {
	u, dir := userOf(t), shortDir(t)
	own, foreign, sticky := filepath.Join(dir, "own"), filepath.Join(dir, "foreign"), filepath.Join(dir, "sticky")
	for _, d := range []string{own, foreign, sticky} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(own, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	chmod(t, sticky, 0o777|os.ModeSticky)
	secret := filepath.Join(sticky, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p := u.Read(secret); p == nil || p.Kind != asuser.Denied || p.Access.Owner != "root" {
		t.Errorf("a file of root: %+v", p)
	}
	for path, want := range map[string]asuser.Kind{
		filepath.Join(own, "x"): -1, filepath.Join(sticky, "x"): -1, secret: asuser.Denied,
		filepath.Join(foreign, "x"): asuser.Denied, filepath.Join(dir, "none", "x"): asuser.Missing,
	} {
		got := asuser.Kind(-1)
		if p := u.Create(path); p != nil {
			got = p.Kind
		}
		if got != want {
			t.Errorf("create %s: %v, want %v", path, got, want)
		}
	}
}

// TestLookup checks names and numbers of users and groups.
func TestLookup(t *testing.T) {
	if u, err := asuser.Lookup("root", []string{"7"}); err != nil || u.UID != 0 || !u.In(7) || !u.In(0) ||
		u.String() != "root (uid 0)" {
		t.Errorf("%+v %v", u, err)
	}
	for name, groups := range map[string][]string{
		"no-such-user": nil,
		"-1":           nil,
		"4294967295":   nil,
		"0":            {"no-such-group"},
	} {
		if u, err := asuser.Lookup(name, groups); err == nil {
			t.Errorf("%s %v: %+v", name, groups, u)
		}
	}
	own, err := asuser.Current()
	failed := errors.New("failed")
	if err != nil || own.Do(func() error { return failed }) != failed {
		t.Errorf("%+v %v", own, err)
	}
}
