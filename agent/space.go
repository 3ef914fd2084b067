package agent

import (
	"fmt"
	"syscall"

	"github.com/nearside-mesh/nearside/agent/inspect"
)

// minSpace is how much there should be free where the agent writes, in bytes.
const minSpace = 64 << 20

// spaceCheck tells when one of the agent's directories is nearly full, before a write fails.
func (a *Agent) spaceCheck() inspect.Check {
	c := inspect.Check{Name: "space", OK: true, Reason: "there is room for state and logs"}
	cfg := a.cfg.Load()
	for _, d := range []struct{ key, path string }{{"paths.state", cfg.Paths.State}, {"paths.logs", cfg.Paths.Logs}} {
		free, err := freeSpace(d.path)
		switch {
		case err != nil:
			continue // a directory that is not there is told by what needs it
		case free < minSpace:
			c.Degraded = true
			c.Reason = fmt.Sprintf("%s has %d MiB left, less than %d: writes to %s fail soon; make room", d.path, free>>20, minSpace>>20, d.key)
			return c
		}
	}
	return c
}

// freeSpace is how many bytes those who are not root may still write to the file system of a directory.
func freeSpace(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}
