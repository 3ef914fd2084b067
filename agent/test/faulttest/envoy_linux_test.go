package faulttest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// envoy is a running Envoy, which need not be live.
type envoy struct {
	cmd   *exec.Cmd
	ended chan struct{}
	boot  string // path of the bootstrap
}

// envoy starts an Envoy with a bootstrap of "nearside bootstrap FLAGS", which edit may change, and
// does not wait. The Envoy runs as the given user.
func (n *node) envoy(t testing.TB, uid int, flags string, edit ...string) *envoy {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can run Envoys of several users")
	}
	binary, err := os.Open(envoytest.Find(t))
	agenttest.Do(t, err)
	defer binary.Close()
	dir := agenttest.ShortDir(t)
	e := &envoy{boot: filepath.Join(dir, "envoy.yaml"), ended: make(chan struct{})}
	s := n.command("nearside bootstrap --admin-socket " + dir + "/admin.sock " + flags)
	if s.code != 0 {
		t.Fatal(s)
	}
	agenttest.Write(t, e.boot, strings.NewReplacer(edit...).Replace(s.out))
	agenttest.Do(t, os.Chown(dir, uid, uid))
	// The user may have no permission to open the path.
	e.cmd = exec.Command("/proc/self/fd/3", "-c", e.boot, "--disable-hot-restart", "--concurrency", "1", "-l",
		"warning", "--log-path", dir+"/log", "--drain-time-s", "30", "--drain-strategy", "immediate",
		"--file-flush-interval-msec", "10")
	e.cmd.ExtraFiles = []*os.File{binary}
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	agenttest.Do(t, e.cmd.Start())
	go func() { _ = e.cmd.Wait(); close(e.ended) }()
	stop := sync.OnceFunc(func() { _ = e.cmd.Process.Kill(); <-e.ended })
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			text, _ := os.ReadFile(dir + "/log")
			t.Logf("the log of Envoy:\n%s", text)
		}
	})
	return e
}

// signal sends a signal to the Envoy.
func (e *envoy) signal(s syscall.Signal) { _ = e.cmd.Process.Signal(s) }

// kill kills the Envoy and waits until it has ended.
func (e *envoy) kill() {
	e.signal(syscall.SIGKILL)
	<-e.ended
}
