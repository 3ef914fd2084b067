package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent"
)

func (a *app) holdCommand() *cobra.Command {
	var dir string
	var stay bool
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Hold the FIFOs of access logs open while the agent is away",
		Long: `Keeps the FIFOs that Envoys write access logs into open while the agent restarts, so that no line is lost and no Envoy
hangs. The agent starts it by itself where no service manager does this. It ends when it has held nothing for a minute,
or when its directory is gone. Where the agent's container ends with all of its processes, run it in another one that shares
the run directory, with --stay.`,
		Example: `  nearside hold --dir /run/nearside
  nearside hold --dir /run/nearside --stay`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usagef("--dir is required: the run directory of the agent")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return agent.Hold(ctx, dir, stay)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "run directory of the agent, where the socket hold.sock is made")
	cmd.Flags().BoolVar(&stay, "stay", false, "do not end while nothing is held")
	return cmd
}
