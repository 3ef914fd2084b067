package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/statedir"
)

// writable returns an error if a command must not write below paths.state: its disk is not mounted,
// the directory cannot be used, or one of the files is lost. New files would pass for the state.
func writable(cfg *config.Config, files ...string) error {
	f := statedir.Open(cfg.Paths.State, cfg.Paths.Logs, cfg.Paths.Run).CheckFiles(files...)
	switch {
	case f == nil:
		return nil
	case errors.Is(f, fs.ErrPermission):
		return notPermitted(fmt.Errorf("%s %s: %w", f.Path, f.Reason, fs.ErrPermission))
	}
	return fmt.Errorf("paths.state cannot be written: %w", f)
}

// keyringWritable is [writable] for a keyring below paths.state.
func keyringWritable(cfg *config.Config) error {
	if !strings.HasPrefix(filepath.Clean(cfg.Gossip.KeyringFile), filepath.Clean(cfg.Paths.State)+"/") {
		return nil
	}
	return writable(cfg)
}
