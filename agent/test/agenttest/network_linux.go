package agenttest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// OwnNetwork runs the test in a child process with a separate network namespace and returns false.
// In the child process it returns true. The namespace disappears with the process. The test is
// skipped without ip, nft, and these tools.
func OwnNetwork(t *testing.T, tools ...string) bool {
	t.Helper()
	const inside = "NEARSIDE_TEST_NETWORK"
	if os.Getenv(inside) != "" {
		return true
	}
	for _, tool := range append(tools, "ip", "nft") {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %s is not on PATH (Debian: apt-get install iproute2 nftables util-linux)", tool)
		}
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("skipped: a network namespace needs root")
	}
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
	t.Logf("%s", out)
	return false
}
