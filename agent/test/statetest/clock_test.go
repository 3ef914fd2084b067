package statetest_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/statedir"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestClock starts agents whose clock is at 1970 or a year ahead, and then right again: policies,
// permissions, and history stay, and revoked tokens are the only state that may end.
func TestClock(t *testing.T) {
	w := newWorld(t)
	for name, now := range map[string]func() time.Time{
		"1970":         func() time.Time { return time.Unix(3600, 0) },
		"a year ahead": func() time.Time { return time.Now().AddDate(1, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := w.copyOf(t)
			for _, clock := range []func() time.Time{now, now, time.Now} {
				up := agenttest.Up(t, dir, agent.Deps{Now: clock}, "dns.listen=127.0.0.1:0")
				r := &running{Agent: up.Agent, api: up.Api(), xds: up.Addrs().XDS}
				r.ask(t, w.versions)
				if got := r.config(t); got != w.config {
					t.Errorf("the config has changed to %s\nfrom %s", got, w.config)
				}
				h, err := r.api.History(t.Context(), "MeshTimeout", "default", "slow")
				if err != nil || len(h.Items) != 1 {
					t.Errorf("history: %+v, %v", h, err)
				}
				if s, problems := r.status(t); !s.Ready {
					t.Errorf("not ready: %s", problems)
				}
				agenttest.Apply(t, up.Agent, "type: MeshTimeout\nmesh: default\nname: other\nspec: {targetRef: {kind: Mesh}, "+
					"to: [{targetRef: {kind: MeshService, name: none}, default: {connectionTimeout: 9s}}]}\n")
				agenttest.Do(t, up.Stop())
			}
		})
	}
}

// TestHostName starts an agent after the name of its host and so of its node has changed: it stays
// the same node.
func TestHostName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root is needed to change the name of a host, in a namespace")
	}
	w := newWorld(t)
	dir := w.copyOf(t)
	r := startProcess(t, dir, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS}, agentHost+"=another")
	r.ask(t, w.versions)
	if got := r.config(t); got != w.config {
		t.Errorf("the config has changed to %s\nfrom %s", got, w.config)
	}
	if s, problems := r.status(t); !s.Ready {
		t.Errorf("not ready: %s", problems)
	}
	for _, name := range []string{statedir.NodeKey, statedir.Database} {
		if _, err := os.Stat(filepath.Join(dir, "state", name+".unusable")); err == nil {
			t.Errorf("%s was replaced", name)
		}
	}
}
