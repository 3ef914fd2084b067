package statetest_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/config"
)

// agentDir is set in processes of this test binary that run an agent, to its directory.
const agentDir = "NEARSIDE_TEST_STATE_AGENT"

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
	cfg, _, faults := config.Load(options(dir))
	if err := faults.Err(); err != nil {
		return err
	}
	a, err := agent.New(cfg, agent.Deps{Notify: func(string) {}})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return a.Run(ctx)
}
