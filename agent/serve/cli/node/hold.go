package node

import (
	"errors"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// holdIdle is how long a holder that holds nothing waits for an agent.
const holdIdle = time.Minute

func holdCommand(env *command.Env) *cobra.Command {
	var dir string
	var stay bool
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Hold FIFOs of access logs and listening sockets while the agent is away",
		Long: `Keeps the FIFOs that Envoys write access logs into open while the agent restarts, so that no line is lost and no Envoy
hangs, and the listening sockets that the next agent takes back. The agent starts it by itself where systemd does not hold
them. It ends when it has held nothing for a minute, or when its directory is gone. Where the agent's container ends with all
of its processes, run it in another one that shares the run directory, with --stay.`,
		Example: `  nearside hold --dir /run/nearside
  nearside hold --dir /run/nearside --stay`,
		Args: command.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return command.Usagef("--dir is required: the run directory of the agent")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			if stay {
				return hold.Serve(ctx, dir, 0)
			}
			err := hold.Serve(ctx, dir, holdIdle)
			if errors.Is(err, hold.ErrHeldElsewhere) {
				return nil // two were started at once; one is enough
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "run directory of the agent, where the socket hold.sock is made")
	cmd.Flags().BoolVar(&stay, "stay", false, "do not end while nothing is held")
	return cmd
}
