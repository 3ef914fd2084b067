package uitest_test

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// programEnv is set in processes of this test binary that run as nearside.
const programEnv = "NEARSIDE_TEST_UI_PROGRAM"

// program is nearside.
var program = command.Program{Version: "0.0.1", CheckConfig: agent.CheckConfig, RunAgent: runAgent,
	RunFiles: runFiles}

// TestMain runs the tests, or nearside: the binary of the tests contains all of its packages.
func TestMain(m *testing.M) {
	// The agent starts its holder without its own environment: only the arguments tell the two apart.
	if os.Getenv(programEnv) == "" && (len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-test.")) {
		os.Exit(m.Run())
	}
	os.Exit(cli.Main(program, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// runAgent runs the agent until it receives SIGTERM.
func runAgent(ctx context.Context, env *command.Env, cfg *config.Config, o command.RunOptions) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	a, err := agent.New(cfg, agent.Deps{Log: slog.New(slog.NewTextHandler(env.Stderr, nil)), Reload: o.Reload,
		Version: env.Build().Version, Stopping: stop})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

func runFiles(ctx context.Context, env *command.Env, o command.FilesOptions,
	use func(context.Context, string) error) error {
	return agent.RunFiles(ctx, agent.FilesOptions{Dirs: o.Dirs, Temp: o.Temp, Env: env.Vars,
		Version: env.Build().Version}, use)
}
