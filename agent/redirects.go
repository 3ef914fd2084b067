package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/nearside-mesh/nearside/agent/deliver/redirects"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// newRedirects creates the redirections of pods.
func (a *Agent) newRedirects(cfg *config.Config) (err error) {
	o := redirects.Options{Store: a.store, Enabled: cfg.Intercept.Pods,
		Installer: &intercept.Pods{Dir: filepath.Join(cfg.Paths.Run, intercept.DirName)}, Virtual: cfg.VIPs.Networks(),
		Changed: func() { a.reconciler.Trigger() }, Log: a.log, Now: a.deps.Now, Registry: a.deps.Metrics}
	if cfg.DNS.Listen != "" {
		o.DNSPort = intercept.DefaultDNSPort
		o.Await = func(ctx context.Context, inode uint64) bool { return a.keeper.Await(ctx, inode) }
	}
	if a.redirects, err = redirects.New(o); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// blocked reports whether an Envoy gets no config because of its redirection.
func (a *Agent) blocked(key node.Key, dataplane *resource.Resource) bool {
	return a.redirects.Blocked(key, dataplane)
}

// sourceProblems returns the problems of Dataplanes in node metadata and of redirections.
func (a *Agent) sourceProblems() []api.Problem {
	return slices.Concat(a.envoys.Problems(), a.redirects.Problems())
}
