package intercept_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
)

// programForAll returns a copy of this program that all users may run, and a directory of records
// that belongs to the user 65534.
func programForAll(t *testing.T) (program, records string) {
	t.Helper()
	dir := filepath.Join("/tmp", fmt.Sprintf("nearside-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program = filepath.Join(dir, "test")
	if b, err := os.ReadFile(os.Args[0]); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	records = filepath.Join(dir, intercept.DirName)
	if err := errors.Join(os.Mkdir(records, 0o755), os.Chown(records, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	return program, records
}

// TestMissingCapability: an installation in another namespace names exactly the capabilities that
// it lacks.
func TestMissingCapability(t *testing.T) {
	w := newWorld(t)
	program, records := programForAll(t)
	pod := exec.Command("sleep", "1000") // the user may open the namespace of its own process
	pod.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var err error
	w.node.do(func() { err = pod.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = pod.Process.Kill(), pod.Wait() })
	for _, c := range []struct {
		has  []uintptr
		want string
	}{
		{nil, "CAP_NET_ADMIN and CAP_SYS_ADMIN"},
		{[]uintptr{unix.CAP_NET_ADMIN}, "CAP_SYS_ADMIN"},
		{[]uintptr{unix.CAP_SYS_ADMIN}, "CAP_NET_ADMIN"},
		{[]uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN}, ""},
	} {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), asInstaller+"="+records, fmt.Sprintf("%s=/proc/%d/ns/net", inNetns, pod.Process.Pid))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, AmbientCaps: c.has}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("with the capabilities %v: %v", c.has, err)
		}
		if c.want == "" {
			if string(out) != "error: <nil>\n" {
				t.Errorf("with all capabilities: %s", out)
			}
			continue
		}
		if !strings.Contains(string(out), "needs the capability "+c.want+"\n") ||
			!strings.Contains(string(out), "add the capability "+c.want+" (") {
			t.Errorf("with the capabilities %v: %s, want %s", c.has, out, c.want)
		}
		if rules := w.node.rules(t); rules != "" {
			t.Errorf("with the capabilities %v, left behind:\n%s", c.has, rules)
		}
	}
}

// TestWithoutRights: errors name the missing capability, and nothing is installed.
func TestWithoutRights(t *testing.T) {
	w := newWorld(t)
	program, records := programForAll(t)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), asInstaller+"="+records)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var err error
	w.node.do(func() { err = cmd.Run() })
	if got := out.String(); err != nil || !strings.Contains(got, "needs the capability CAP_NET_ADMIN") ||
		!strings.Contains(got, "hint: run it as root") {
		t.Errorf("an installation by nobody: %v: %s", err, got)
	}
	if rules := w.node.rules(t); rules != "" {
		t.Errorf("left behind:\n%s", rules)
	}
	// An agent without the capability reports it, and names go to the real servers.
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asInstaller+"="+w.dir)
	var installed []byte
	w.node.do(func() { installed, err = cmd.CombinedOutput() })
	if string(installed) != "error: <nil>\n" {
		t.Fatalf("installed by root in its own namespace: %v: %s", err, installed)
	}
	p := w.agentAs(t, program, 65534)
	p.awaitNext("needs the capability CAP_NET_ADMIN")
	if got := w.node.ask(t, "udp", outsideV4+":53", "web.mesh", mdns.TypeA); got != "NXDOMAIN" {
		t.Errorf("redirected by an agent without rights: %s", got)
	}
}
