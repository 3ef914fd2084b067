package statetest_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/config"
)

// agentDir is set in processes of this test binary that run an agent, to its directory.
const agentDir = "NEARSIDE_TEST_STATE_AGENT"

// Further variables of these processes.
const (
	agentSet  = "NEARSIDE_TEST_STATE_SET"  // keys of the config
	agentHost = "NEARSIDE_TEST_STATE_HOST" // name of the host, in a UTS namespace of the process
)

// TestMain runs the tests, or an agent as another user.
func TestMain(m *testing.M) {
	dir := os.Getenv(agentDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := serve(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs an agent until the process gets SIGTERM.
func serve(dir string) error {
	o := options(dir, strings.Fields(os.Getenv(agentSet))...)
	if host := os.Getenv(agentHost); host != "" {
		if err := syscall.Sethostname([]byte(host)); err != nil {
			return err
		}
		o.Hostname = "" // that of the system
	}
	cfg, _, faults := config.Load(o)
	if err := faults.Err(); err != nil {
		return err
	}
	a, err := agent.New(cfg, agent.Deps{Notify: func(state string) { _, _ = daemon.SdNotify(false, state) }})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return a.Run(ctx)
}
