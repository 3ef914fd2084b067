package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/memory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// Limits of an idle agent of a node at the edge, in KiB: 10 proxies that reach 20 services.
const (
	edgeResident  = 44 << 10
	edgeAnonymous = 15 << 10

	holderResident = 16 << 10
)

// TestMemoryOfEdgeNode starts an agent in the smallest memory limit that the agent accepts. It must
// serve all proxies and, when it is idle, return memory to the system. The kernel must not kill it.
func TestMemoryOfEdgeNode(t *testing.T) {
	if testing.Short() {
		t.Skip("this builds the agent")
	}
	const proxies, services = 10, 20
	group := newMemoryGroup(t, memory.Smallest)
	binary := filepath.Join(t.TempDir(), "nearside")
	if out, err := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w",
		"-o", binary, "../cmd/agent").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	forget(t, binary)
	limited := filepath.Join(t.TempDir(), "limited")
	agenttest.Do(t, os.WriteFile(limited, []byte("#!/bin/sh\necho $$ >"+group.dir+"/cgroup.procs\nexec "+binary+` "$@"`), 0o755))
	a := startProcess(t, limited)
	agenttest.Write(t, filepath.Join(a.dir, "resources", "mesh.yaml"), bigMesh(services, proxies))
	subscribeAll(t, filepath.Join(a.dir, "run", "xds.sock"), proxies, services)

	t.Logf("%v of processor time until all proxies are served", a.cpu(t))
	for late := time.Now().Add(agenttest.Patience); ; <-time.After(100 * time.Millisecond) {
		resident, anonymous := a.status(t, "VmRSS"), a.status(t, "RssAnon")
		if resident <= edgeResident*2/3 && anonymous <= edgeAnonymous { // after a trim
			t.Logf("%.1f MiB resident, %.1f of them anonymous", resident/1024, anonymous/1024)
			break
		}
		if time.Now().After(late) {
			t.Fatalf("an idle agent has %.1f MiB resident, %.1f of them anonymous", resident/1024, anonymous/1024)
		}
	}
	if n := kills(group); n != "0" {
		t.Errorf("the kernel has killed %s processes", n)
	}
	checkHolderMemory(t, binary)
}

// checkHolderMemory starts a holder, which returns the memory of its start.
func checkHolderMemory(t *testing.T, binary string) {
	t.Helper()
	dir := agenttest.ShortDir(t)
	cmd := exec.Command(binary, "hold", "--dir", dir, "--stay")
	agenttest.Do(t, cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	h := &process{cmd: cmd}
	agenttest.Eventually(t, "the holder is started", func() bool {
		_, err := os.Stat(filepath.Join(dir, "hold.sock"))
		return err == nil
	})
	agenttest.Eventually(t, "the memory of the holder is small", func() bool {
		return h.status(t, "VmRSS") <= holderResident
	})
}

// forget removes a file from the cache of the kernel, so its pages count for the group that reads
// them next.
func forget(t *testing.T, name string) {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	agenttest.Do(t, f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
