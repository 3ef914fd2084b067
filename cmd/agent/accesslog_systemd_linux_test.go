package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// systemdProgram is the path of systemd on Debian and Fedora.
const systemdProgram = "/usr/lib/systemd/systemd"

// bootScript starts a systemd with the units of only one directory as the first process of new
// namespaces. It has a separate /run and a separate subtree of the control groups.
const bootScript = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
	mount -t tmpfs tmpfs /sys/fs/cgroup
	mkdir /sys/fs/cgroup/systemd
	mount -t cgroup -o none,name=systemd,xattr systemd /sys/fs/cgroup/systemd
fi
exec ` + systemdProgram + ` --system --unit=default.target
`

// supervise starts the agent as a service of a separate systemd, with a unit of the holder if
// holder is true.
func (w *logging) supervise(holder bool, settings string) {
	w.t.Helper()
	for _, path := range []string{systemdProgram, "/usr/bin/unshare"} {
		if _, err := os.Stat(path); err != nil {
			w.t.Skipf("skipped: %v", err)
		}
	}
	if out, err := exec.Command("unshare", append(namespaces(), "mount", "-t", "tmpfs", "tmpfs", "/run")...).
		CombinedOutput(); err != nil {
		w.t.Skipf("skipped: there are no namespaces to run a systemd in: %v %s", err, out)
	}
	var version int
	if out, err := exec.Command(systemdProgram, "--version").Output(); err != nil {
		w.t.Skipf("skipped: %v", err)
	} else if _, err := fmt.Sscanf(string(out), "systemd %d", &version); err != nil {
		w.t.Skipf("skipped: %v: %.40q", err, out)
	}
	group := ""
	for _, root := range []string{"/sys/fs/cgroup/systemd", "/sys/fs/cgroup"} {
		if _, err := os.Stat(root + "/cgroup.procs"); err == nil {
			group = filepath.Join(root, "nearside-test-"+strconv.Itoa(os.Getpid()))
			break
		}
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		w.t.Skipf("skipped: no control group can be made: %v", err)
	}
	self, err := exec.LookPath("nearside")
	agenttest.Do(w.t, err)
	agenttest.Do(w.t, os.Mkdir(w.dir+"/units", 0o755))
	agenttest.Write(w.t, w.dir+"/units/default.target", "[Unit]\nDefaultDependencies=no\nWants=nearside.service\n")
	agenttest.Do(w.t, os.MkdirAll(w.dir+"/run", 0o755))
	if holder {
		settings += "\n[Unit]\nWants=nearside-hold.service\nAfter=nearside-hold.service"
		agenttest.Write(w.t, w.dir+"/units/nearside-hold.service", fmt.Sprintf(`[Unit]
DefaultDependencies=no
StartLimitIntervalSec=0
[Service]
Type=notify
ExecStart=%s hold --stay --dir %s/run
Restart=always
RestartSec=100ms
`, self, w.dir))
	}
	agenttest.Write(w.t, w.dir+"/units/nearside.service", fmt.Sprintf(`[Unit]
DefaultDependencies=no
StartLimitIntervalSec=0
[Service]
Type=notify
ExecStart=%s %s
Restart=always
RestartSec=2
StandardOutput=append:%[3]s/agent.log
StandardError=append:%[3]s/agent.log
%[4]s
`, self, `"`+strings.Join(w.args(), `" "`)+`"`, w.dir, settings))
	agenttest.Write(w.t, w.dir+"/boot", bootScript)
	cmd := exec.Command("/bin/sh", "-c",
		`echo $$ > "$0"/cgroup.procs; exec unshare `+strings.Join(namespaces(), " ")+` /bin/sh "$1"`, group, w.dir+"/boot")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SYSTEMD_UNIT_PATH=" + w.dir + "/units", "SYSTEMD_LOG_TARGET=console",
		"container=test"}
	cmd.Stdout, cmd.Stderr = w.said, w.said
	agenttest.Do(w.t, cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if w.t.Failed() {
			b, _ := os.ReadFile(w.dir + "/agent.log")
			w.t.Logf("the agent's log:\n%s", b)
		}
		w.await("the control groups are empty", func() bool { return removeGroups(group) == nil })
	})
	w.awaitService(0)
}

// namespaces returns arguments for unshare(1).
func namespaces() []string {
	return []string{"--pid", "--fork", "--mount", "--mount-proc", "--cgroup", "--uts", "--ipc", "--kill-child=KILL"}
}

// removeGroups removes a control group and its children, which must have no processes.
func removeGroups(path string) error {
	entries, err := os.ReadDir(path)
	if os.IsNotExist(err) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroups(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(path)
}

// processes returns the PIDs of the program's processes that run command on the test's directory.
func (w *logging) processes(command string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if args := strings.Split(string(line), "\x00"); len(args) > 1 && args[1] == command &&
			strings.Contains(string(line), w.dir) {
			if pid, err := strconv.Atoi(e.Name()); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// awaitService waits until an agent with a PID other than before responds, and returns its PID.
func (w *logging) awaitService(before int) (pid int) {
	w.t.Helper()
	w.await("the service answers", func() bool {
		pids := w.processes("run")
		if len(pids) != 1 || pids[0] == before {
			return false
		}
		pid = pids[0]
		h, err := w.api().Ready(w.t.Context())
		return err == nil && h.Status == "ok"
	})
	return pid
}

// TestAccessLogUnderSystemd makes a real systemd restart the agent after it exits and after it is
// killed with all processes of the unit, and restart the holder after it is killed. The holder must
// keep the FIFOs for the 2 s until the restart, the Envoy must continue to serve, and each line
// must be in the file once.
func TestAccessLogUnderSystemd(t *testing.T) {
	w := newLogging(t)
	w.log(w.file("web.log"))
	w.supervise(true, "KillMode=control-group")
	w.startEnvoy()
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	holder := w.awaitHolder(0)
	pid := w.awaitService(0)
	stop := w.load("a", 1500)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		w.more(300)
		agenttest.Do(t, syscall.Kill(holder, syscall.SIGKILL))
		holder = w.awaitHolder(holder)
		agenttest.Do(t, syscall.Kill(pid, signal))
		// Not that there is none: the next one may have started already.
		w.await("the agent has ended", func() bool { return !slices.Contains(w.processes("run"), pid) })
		w.more(1500)
		pid = w.awaitService(pid)
		t.Logf("%v: the next agent has the pid %d", signal, pid)
	}
	w.more(300)
	w.exactlyOnce("web.log", "a", 1, stop())
	if lost := w.gauge("filesystem.write_failed"); lost > 0 {
		t.Errorf("%d writes of Envoy have failed", lost)
	}
	w.awaitHolder(0)
}

// awaitHolder waits until one process with a PID other than before holds the FIFOs, and returns its
// PID.
func (w *logging) awaitHolder(before int) (pid int) {
	w.t.Helper()
	w.await("another process holds the FIFOs", func() bool {
		pids := w.processes("hold")
		if len(pids) != 1 || pids[0] == before {
			return false
		}
		pid = pids[0]
		s, err := w.api().Status(w.t.Context())
		held, failed := hold.Check(w.dir + "/run")
		return err == nil && failed == nil && len(s.Holders) == 1 && s.Holders[""] == 0 && held.FIFOs == 1
	})
	return pid
}

// TestAccessLogWithoutAHolderUnit checks that without a unit of the holder the agent starts the
// holder, which outlives it with KillMode=process.
func TestAccessLogWithoutAHolderUnit(t *testing.T) {
	w := newLogging(t)
	w.log(w.file("web.log"))
	w.supervise(false, "KillMode=process")
	w.startEnvoy()
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	w.awaitHolder(0)
	pid := w.awaitService(0)
	stop := w.load("a", 1500)
	w.more(300)
	agenttest.Do(t, syscall.Kill(pid, syscall.SIGKILL))
	w.more(1500)
	w.awaitService(pid)
	w.more(300)
	w.exactlyOnce("web.log", "a", 1, stop())
}
