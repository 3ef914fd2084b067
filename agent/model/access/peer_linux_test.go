package access_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// dialEnv makes the test binary connect to a socket and wait until its standard input ends.
const dialEnv = "NEARSIDE_TEST_DIAL"

func TestMain(m *testing.M) {
	if path := os.Getenv(dialEnv); path != "" {
		c, err := net.Dial("unix", path)
		if err != nil {
			os.Exit(3)
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		c.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// caller is a connected process.
type caller struct {
	conn net.Conn
	end  func() // ends the process and waits for it
}

// connected starts a process with the given attributes, which connects.
func connected(t *testing.T, attr *syscall.SysProcAttr) caller {
	t.Helper()
	dir, err := os.MkdirTemp("", "peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	binary, path := filepath.Join(dir, "caller"), filepath.Join(dir, "s")
	// a process that starts meanwhile would inherit the open file, which could then not be executed
	syscall.ForkLock.RLock()
	err = os.WriteFile(binary, self, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_ = l.(*net.UnixListener).SetDeadline(time.Now().Add(2 * time.Minute))
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env, cmd.SysProcAttr, cmd.Dir = []string{dialEnv + "=" + path}, attr, "/"
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("a process cannot be started so here: %v", err)
	}
	c, err := l.Accept()
	if err != nil {
		_ = cmd.Process.Kill()
		t.Fatal(err)
	}
	end := func() { in.Close(); _ = cmd.Wait() }
	t.Cleanup(func() { end(); c.Close() })
	return caller{c, end}
}

func peerOf(t *testing.T, c net.Conn) access.Peer {
	t.Helper()
	p, err := access.PeerOf(c, true)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ownCgroup returns the cgroup of this process.
func ownCgroup(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	t.Skip("no cgroup of version 2 here")
	return ""
}

// TestPeer checks the kernel's report about a process of the same user.
func TestPeer(t *testing.T) {
	p := peerOf(t, connected(t, nil).conn)
	if !p.Local || int(p.UID) != os.Getuid() || int(p.GID) != os.Getgid() || p.PID == 0 || p.Foreign {
		t.Errorf("got %+v", p)
	}
	if want := ownCgroup(t); p.Cgroup != want {
		t.Errorf("cgroup %q, want %q", p.Cgroup, want)
	}
}

// TestPeerOfAnotherUser checks a process with supplementary groups.
func TestPeerOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it takes root to act as other users")
	}
	p := peerOf(t, connected(t,
		&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 61001, Gid: 61002, Groups: []uint32{61003, 61004}}}).conn)
	if p.UID != 61001 || p.GID != 61002 || len(p.Groups) != 2 || p.Groups[1] != 61004 || p.Root() {
		t.Errorf("got %+v", p)
	}
}

// TestPeerThatEnded checks that no cgroup is read for a process that ended after connect(2),
// because another process may have its id.
func TestPeerThatEnded(t *testing.T) {
	c := connected(t, nil)
	c.end()
	if p := peerOf(t, c.conn); p.Cgroup != "" || int(p.UID) != os.Getuid() {
		t.Errorf("got %+v", p)
	}
}

// TestPeerInUserNamespace checks that root in a user namespace counts as the user to which it is
// mapped.
func TestPeerInUserNamespace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it takes root to map users")
	}
	p := peerOf(t, connected(t, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 61005, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 61006, Size: 1}},
		Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
	}).conn)
	if p.UID != 61005 || p.GID != 61006 || p.Root() {
		t.Errorf("got %+v", p)
	}
}

// TestPeerOverTCP checks that a TCP peer has only an address.
func TestPeerOverTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if p := peerOf(t, s); p.Local || p.Root() || !strings.Contains(p.String(), "address 127.0.0.1") {
		t.Errorf("got %+v, owner %q", p, p.Owner())
	}
}
