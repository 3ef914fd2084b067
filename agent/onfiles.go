package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/host/config"
)

// FilesOptions configures an agent on files.
type FilesOptions struct {
	Dirs    []string // of resource files
	Temp    string   // directory for everything that the agent writes
	Env     []string // variables; those that affect what files mean apply
	Version string   // of the program
}

// RunFiles runs an agent on resource files, without proxies, network listeners, and a pool, and
// calls use with the socket of its API, which only the user of this process can open. The agent
// ends when use returns. RunFiles returns the result of use, or why the agent could not run.
func RunFiles(ctx context.Context, o FilesOptions, use func(ctx context.Context, socket string) error) error {
	cfg, err := loadFiles(o)
	if err != nil {
		return err
	}
	a, err := New(cfg, Deps{Version: o.Version, Notify: func(string) {}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		err := a.Run(ctx)
		ended <- err
		cancel(err)
	}()
	select {
	case <-a.Ready():
	case <-ctx.Done():
		return <-ended
	}
	err = use(ctx, a.Addrs().API)
	cancel(nil)
	if stopped := <-ended; stopped != nil {
		err = errors.Join(err, fmt.Errorf("the agent on the files: %w", stopped))
	}
	return err
}

// filesVars are the variables of the config that affect what files mean, as in offline commands.
var filesVars = []string{"NEARSIDE_NODE_ZONE", "NEARSIDE_AUTO_REACHABLE_BACKENDS", "NEARSIDE_MESH_FLATNETWORK"}

// loadFiles returns the config of an agent on files. It does not read the config of this node.
func loadFiles(o FilesOptions) (*config.Config, error) {
	type object map[string]any
	dirs := []object{}
	for _, d := range o.Dirs {
		dirs = append(dirs, object{"path": d})
	}
	private := object{"mode": "0600", "group": ""}
	doc, err := json.Marshal(object{
		"node": object{"name": "files"},
		"paths": object{"run": filepath.Join(o.Temp, "run"), "state": filepath.Join(o.Temp, "state"),
			"logs": filepath.Join(o.Temp, "logs")},
		"resources": object{"dir": dirs},
		"api":       object{"socket": private},
		"xds":       object{"socket": private},
		"dns":       object{"listen": ""},
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(o.Temp, "agent.json")
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		return nil, err
	}
	var env []string
	for _, v := range o.Env {
		if name, _, _ := strings.Cut(v, "="); slices.Contains(filesVars, name) {
			env = append(env, v)
		}
	}
	cfg, _, faults := config.Load(config.LoadOptions{File: file, Env: env})
	return cfg, faults.Err()
}
