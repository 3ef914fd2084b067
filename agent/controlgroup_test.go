package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// controlGroup limits the resources of processes.
type controlGroup struct{ dir string }

// newCPUGroup creates a group with a share of one core in percent. It skips the test if the system
// does not permit that.
func newCPUGroup(t testing.TB, percent int) *controlGroup {
	const period = 100_000
	quota := strconv.Itoa(period * percent / 100)
	return newControlGroup(t, "a quota of processor time", []bound{
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota},                 // cgroup v1
		{"/sys/fs/cgroup", "cpu.max", quota + " " + strconv.Itoa(period)}, // cgroup v2
	})
}

// newMemoryGroup creates a group with a memory limit in bytes.
func newMemoryGroup(t testing.TB, bytes int) *controlGroup {
	return newControlGroup(t, "a limit of memory", []bound{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", strconv.Itoa(bytes)},
		{"/sys/fs/cgroup", "memory.max", strconv.Itoa(bytes)},
	})
}

type bound struct{ base, file, text string }

func newControlGroup(t testing.TB, what string, bounds []bound) *controlGroup {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(what + " needs root")
	}
	for _, v := range bounds {
		dir := filepath.Join(v.base, fmt.Sprintf("nearside-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			for range 100 { // until the kernel has released the process
				if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
					return
				}
				<-time.After(10 * time.Millisecond)
			}
		})
		if os.WriteFile(filepath.Join(dir, v.file), []byte(v.text), 0o644) == nil {
			return &controlGroup{dir}
		}
	}
	t.Skip("no control group with " + what + " can be made here")
	return nil
}

// read returns the content of the first file that exists.
func (g *controlGroup) read(names ...string) string {
	for _, name := range names {
		if b, err := os.ReadFile(filepath.Join(g.dir, name)); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	return ""
}
