package agent

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/nearside-mesh/nearside/agent/host/config"
)

// logsMode is the mode of paths.logs. It lets members of the groups of log files pass.
const logsMode = 0o751

// makeDirs creates missing directories. Only the one of the sockets is required; without the
// others, the agent logs a warning and does less.
func (a *Agent) makeDirs(cfg *config.Config, g groups) {
	run := max(socketDirMode(config.Socket(cfg.API.Socket)), socketDirMode(config.Socket(cfg.XDS.Socket)))
	if g.api != g.xds {
		run |= 0o001 // it has one group, and members of the other group must pass
	}
	for _, d := range []struct {
		path string
		mode os.FileMode
		gid  int
	}{
		{cfg.Paths.Run, run, g.api},
		{filepath.Dir(cfg.XDS.Socket.Path), socketDirMode(config.Socket(cfg.XDS.Socket)), g.xds},
		{cfg.Paths.State, 0o700, -1}, {filepath.Join(cfg.Paths.State, spoolDirName), 0o700, -1},
		{cfg.Paths.Logs, logsMode, -1},
	} {
		if a.withoutDir() && strings.HasPrefix(d.path, cfg.Paths.State) {
			continue
		}
		if err := makeDir(d.path, d.mode, d.gid); err != nil {
			a.log.Warn("a directory cannot be created", "dir", d.path, "error", err)
		}
	}
}
